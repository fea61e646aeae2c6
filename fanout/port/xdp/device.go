package xdp

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// device is what Open learns of an interface.
type device struct {
	name   string
	mtu    int
	rx, tx int // queues in use
	xdp    *netlink.LinkXdp
}

// lookUp reads what an interface is like. It runs in the interface's namespace.
func lookUp(fd, ifindex int) (*device, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("look up interface %d: %w", ifindex, err)
	}
	a := l.Attrs()
	d := &device{name: a.Name, mtu: a.MTU, xdp: a.Xdp}
	var req request
	e := nameOf(fd, ifindex, &req)
	if e == 0 {
		d.rx, d.tx, e = channels(fd, &req)
	}
	if e == unix.EOPNOTSUPP {
		d.rx, d.tx, e = a.NumRxQueues, a.NumTxQueues, 0
	}
	if e != 0 {
		return nil, fmt.Errorf("read the queues of %s: %w", a.Name, e)
	}
	return d, nil
}

// newWatch opens a socket that tells by an error event when an interface goes down or away, which an
// AF_XDP socket does not, and that answers questions about it. It runs in the interface's
// namespace. It asks for frames of an ethertype that is nobody's (RFC 7042), as only a socket
// that asks for some is told.
func newWatch(ifindex int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) {
		return -1, fmt.Errorf("open packet socket: %w (needs CAP_NET_RAW in the namespace's owner)", err)
	}
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	const reserved = 0xffff
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: reserved, Ifindex: ifindex}); err != nil {
		return -1, errors.Join(fmt.Errorf("watch interface %d: %w", ifindex, err), unix.Close(fd))
	}
	return fd, nil
}

// mtu asks for the interface's MTU.
func (e *End) mtu() (mtu int, ok bool) {
	var r request
	if nameOf(e.watch, e.ifindex, &r) != 0 || ioctl(e.watch, unix.SIOCGIFMTU, &r) != 0 {
		return 0, false
	}
	return int(value[int32](&r)), true
}

// running tells whether the interface is there, is up and has a carrier.
func (e *End) running() bool {
	var r request
	return nameOf(e.watch, e.ifindex, &r) == 0 && carrier(e.watch, &r)
}

// inNetNS runs fn in the namespace of descriptor ns; 0 is the caller's.
func inNetNS(ns int, fn func() error) error {
	if ns == 0 {
		return fn()
	}
	return netns.Do(ns, fn)
}

// check refuses an interface on which senders could not all send, or that takes longer frames
// than chunks have room for.
func (d *device) check(senders int) error {
	if d.tx < senders {
		return fmt.Errorf("%s has %d transmit queues for %d senders (create it with numtxqueues %d)", d.name, d.tx, senders, senders)
	}
	if d.rx < 1 {
		return fmt.Errorf("%s has no receive queue", d.name)
	}
	if d.mtu > maxMTU {
		return fmt.Errorf("%s has an MTU of %d, and AF_XDP takes %d (lower it, or use port packet)", d.name, d.mtu, maxMTU)
	}
	return nil
}

// maxMTU leaves room in the biggest chunk, a page, for headroom, header and one tag.
const maxMTU = bigChunk - headroom - ethHdrLen - tagLen

const (
	smallChunk = 2048
	bigChunk   = 4096
)

// chunkFor returns the size of the chunks for an MTU.
func chunkFor(mtu int) int {
	if longest(mtu) <= smallChunk-headroom {
		return smallChunk
	}
	return bigChunk
}
