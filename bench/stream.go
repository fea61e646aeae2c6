package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// stream is a connected TCP socket whose calls block.
type stream int

// connectTime bounds how long a connection takes to come about.
const connectTime = 5 * time.Second

// connect returns both ends of a TCP connection from a to b.
func connect(ctx context.Context, a, b Host) (in, out stream, err error) {
	if err := ctx.Err(); err != nil {
		return -1, -1, err
	}
	ln, err := b.socket(unix.SOCK_STREAM)
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(ln)
	if err := listen(ln); err != nil {
		return -1, -1, fmt.Errorf("listen on %s: %w", b.Addr, err)
	}
	if out, err = a.dial(ln); err != nil {
		return -1, -1, fmt.Errorf("connect %s to %s: %w", a.Addr, b.Addr, err)
	}
	fd, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
	if err == nil {
		in = stream(fd)
		err = errors.Join(setTimeout(fd, unix.SO_RCVTIMEO, 0), in.smooth()) // it has inherited the listener's time
	}
	if err != nil {
		return -1, -1, errors.Join(fmt.Errorf("accept on %s: %w", b.Addr, err), out.close())
	}
	return in, out, nil
}

func listen(fd int) error {
	return errors.Join(setTimeout(fd, unix.SO_RCVTIMEO, connectTime), unix.Listen(fd, 1))
}

// dial connects to where a socket listens.
func (h Host) dial(ln int) (stream, error) {
	to, err := unix.Getsockname(ln)
	if err != nil {
		return -1, err
	}
	fd, err := h.socket(unix.SOCK_STREAM)
	if err != nil {
		return -1, err
	}
	s := stream(fd)
	// The time for sending bounds connect, and must not bound what follows.
	err = setTimeout(fd, unix.SO_SNDTIMEO, connectTime)
	if err == nil {
		err = unix.Connect(fd, to)
	}
	if err == nil {
		err = errors.Join(setTimeout(fd, unix.SO_SNDTIMEO, 0), s.smooth())
	}
	if err != nil {
		return -1, errors.Join(err, s.close())
	}
	return s, nil
}

// smooth sends small writes at once.
func (s stream) smooth() error {
	return unix.SetsockoptInt(int(s), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// Read reads what there is; io.EOF when the peer has closed.
func (s stream) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), b)
		switch {
		case err == nil && n == 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case !errors.Is(err, unix.EINTR):
			return 0, err
		}
	}
}

// Write writes all of b.
func (s stream) Write(b []byte) (n int, err error) {
	for n < len(b) {
		k, err := unix.SendmsgN(int(s), b[n:], nil, nil, unix.MSG_NOSIGNAL)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return n, err
		}
		n += max(k, 0)
	}
	return n, nil
}

// finish says that nothing more is written.
func (s stream) finish() error { return unix.Shutdown(int(s), unix.SHUT_WR) }

func (s stream) close() error { return unix.Close(int(s)) }
