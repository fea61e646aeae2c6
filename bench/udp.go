package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// datagram is the payload that makes a 64-byte frame, its check sequence included.
const datagram = 64 - 4 - 14 - 20 - 8

// udpBuffer holds 10 ms of small datagrams at a million a second: enough that the reader's
// scheduling isn't what is measured.
const udpBuffer = 8 << 20

const (
	linger    = 50 * time.Millisecond // the reader goes on for what is still on its way
	udpPoll   = 10 * time.Millisecond // how often a reader without datagrams looks at the clock
	maxUDP    = 65507
	maxSource = 4096
)

// UDP sends small datagrams of one flow from a to b, as fast as it can, for d, and returns what b
// read: what the network lost isn't counted.
func UDP(ctx context.Context, a, b Host, d time.Duration) (Throughput, error) {
	return UDPFlows(ctx, a, b, 1, datagram, d)
}

// UDPFlows is UDP with several flows, each from a port of its own, and datagrams of size bytes. One
// thread sends all of them, one reads.
func UDPFlows(ctx context.Context, a, b Host, flows, size int, d time.Duration) (t Throughput, err error) {
	if flows < 1 || flows > maxSource || size < 1 || size > maxUDP {
		return t, fmt.Errorf("send %d flows of %d bytes: outside 1 to %d flows, 1 to %d bytes", flows, size, maxSource, maxUDP)
	}
	in, err := b.reader(true)
	if err != nil {
		return t, err
	}
	defer unix.Close(in)
	out, err := a.sources(in, flows)
	defer closeAll(out)
	if err != nil {
		return t, err
	}
	end := time.Now().Add(d)
	read := b.work(func() (err error) { t, err = collect(ctx, in, end.Add(linger)); return err })
	err = <-a.work(func() error { return flood(ctx, out, size, end) })
	err = errors.Join(err, <-read)
	t.Elapsed = d
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	return t, err
}

// reader opens a socket whose calls don't block for long: with a large buffer, or, if nobody will read it, the smallest.
func (h Host) reader(read bool) (fd int, err error) {
	if fd, err = h.socket(unix.SOCK_DGRAM); err != nil {
		return -1, err
	}
	size := 0
	if read {
		size = udpBuffer
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
	if err == nil {
		err = setTimeout(fd, unix.SO_RCVTIMEO, udpPoll)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("prepare socket on %s: %w", h.Addr, err), unix.Close(fd))
	}
	return fd, nil
}

// sources opens sockets that are connected to another. What was opened is returned also with an error.
func (h Host) sources(to, n int) (fds []int, err error) {
	peer, err := unix.Getsockname(to)
	if err != nil {
		return nil, fmt.Errorf("find reader: %w", err)
	}
	for range n {
		fd, err := h.socket(unix.SOCK_DGRAM)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
		if err := unix.Connect(fd, peer); err != nil {
			return fds, fmt.Errorf("connect from %s: %w", h.Addr, err)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// flood writes datagrams until end, some of each flow in turn.
func flood(ctx context.Context, out []int, size int, end time.Time) error {
	m := newMessages(size)
	for ctx.Err() == nil && time.Now().Before(end) {
		for _, fd := range out {
			if _, err := m.send(fd); err != nil && !slices.Contains(busy, err) {
				return fmt.Errorf("send datagrams: %w", err)
			}
		}
	}
	return nil
}

// busy is what a send may end with when queues are full, or a reader isn't there any more.
var busy = []error{unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ECONNREFUSED}

// collect counts what comes until end.
func collect(ctx context.Context, in int, end time.Time) (t Throughput, err error) {
	m := newMessages(maxUDP)
	for ctx.Err() == nil && time.Now().Before(end) {
		n, err := m.receive(in)
		switch {
		case err == nil:
			t.Frames += uint64(n)
			t.Bytes += m.bytes(n)
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return t, fmt.Errorf("read datagrams: %w", err)
		}
	}
	return t, nil
}
