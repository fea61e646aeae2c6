package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// datagram is the payload that makes a 64-byte frame, its check sequence included.
const datagram = 64 - 4 - 14 - 20 - 8

// UDP sends small datagrams of one flow from a to b, as fast as it can, for d, and returns what b
// read: what the network lost isn't counted.
func UDP(ctx context.Context, a, b Host, d time.Duration) (Throughput, error) {
	out, err := a.udp(ctx)
	if err != nil {
		return Throughput{}, err
	}
	defer out.Close()
	in, err := b.udp(ctx)
	if err != nil {
		return Throughput{}, err
	}
	defer in.Close()

	start := time.Now()
	end := start.Add(d)
	stop := context.AfterFunc(ctx, func() { in.SetReadDeadline(start) })
	defer stop()
	// The reader goes on for a moment, for what is still on its way.
	if err := in.SetReadDeadline(end.Add(50 * time.Millisecond)); err != nil {
		return Throughput{}, err
	}
	sent := make(chan error, 1)
	go func() { sent <- flood(ctx, out, in.LocalAddr().(*net.UDPAddr), end) }()
	t := Throughput{Elapsed: d}
	buf := make([]byte, 2048)
	for {
		n, err := in.Read(buf)
		if err != nil {
			break // the deadline: nothing else ends a UDP socket's Read
		}
		t.Bytes += uint64(n)
		t.Frames++
	}
	return t, errors.Join(<-sent, ctx.Err())
}

// flood writes datagrams from c to peer until end. It calls the kernel directly: the
// runtime's poller costs as much as the datagram.
func flood(ctx context.Context, c *net.UDPConn, peer *net.UDPAddr, end time.Time) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	ap := peer.AddrPort()
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	if ap.Addr().Unmap().Is4() {
		to = &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().Unmap().As4()}
	}
	var werr error
	err = rc.Write(func(fd uintptr) bool {
		if werr = unix.Connect(int(fd), to); werr != nil {
			return true
		}
		var buf [datagram]byte
		for ctx.Err() == nil && time.Now().Before(end) {
			for range 64 { // between two looks at the clock
				_, err := unix.Write(int(fd), buf[:])
				switch {
				case err == nil, errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EINTR):
				default:
					werr = fmt.Errorf("send datagram: %w", err)
					return true
				}
			}
		}
		return true
	})
	return errors.Join(err, werr)
}
