package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// Host is where a socket lives: a namespace and one of its addresses.
type Host struct {
	NS   int // descriptor of the network namespace
	Addr netip.Addr
}

// listen opens a TCP listener on a free port of h.
func (h Host) listen(ctx context.Context) (ln *net.TCPListener, err error) {
	err = netns.Do(h.NS, func() error {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(h.Addr, 0).String())
		if err == nil {
			ln = l.(*net.TCPListener)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", h.Addr, err)
	}
	return ln, nil
}

// dial connects h to a TCP listener.
func (h Host) dial(ctx context.Context, to net.Addr) (c *net.TCPConn, err error) {
	err = netns.Do(h.NS, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.Addr, 0))}
		conn, err := d.DialContext(ctx, "tcp", to.String())
		if err == nil {
			c = conn.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect %s to %s: %w", h.Addr, to, err)
	}
	return c, nil
}

// udp opens a UDP socket of h with a large receive buffer.
func (h Host) udp(ctx context.Context) (c *net.UDPConn, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) (err error) {
		cerr := rc.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpBuffer)
		})
		if cerr != nil {
			return cerr
		}
		return err
	}}
	err = netns.Do(h.NS, func() error {
		pc, err := lc.ListenPacket(ctx, "udp", netip.AddrPortFrom(h.Addr, 0).String())
		if err == nil {
			c = pc.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open udp socket on %s: %w", h.Addr, err)
	}
	return c, nil
}

// udpBuffer holds 10 ms of small datagrams at a million a second: enough that the reader's
// scheduling isn't what is measured.
const udpBuffer = 8 << 20
