package packet

// An end's frames can be spread over several sockets, one per worker: a fan-out group
// (packet(7), PACKET_FANOUT), whose program names the place in the group of the socket that
// gets a frame. So that a flow keeps its order, one socket must get all of it, ever:
//
//	when                 place of a socket in the group
//	opening              the order of creation. All sockets are deaf until the last has
//	                     joined, so no frame comes that the program didn't place
//	open                 the same: none leaves (fanout_unlink moves the last one there)
//	interface down, up   each leaves and comes back, in the order of creation
//	                     (packet_notifier walks the namespace's list), so it ends the same. What
//	                     comes in between, moments in which the link hardly carries
//	                     anything, may go anywhere, and is lost: port.Strict
//	ring replaced        the socket leaves and joins at the end (packet_set_ring). Then the
//	                     interface is taken down and up (Rx.rejoin)
//
// The program's table isn't changed while the group is open: frames that wait in the ring of a
// bucket's old socket would be overtaken by those in its new one. If a bucket is given to
// another worker, that of its socket hands its frames over.

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// ignoreOutgoing is PACKET_FANOUT_FLAG_IGNORE_OUTGOING (linux/if_packet.h). In a group the
// sockets' own PACKET_IGNORE_OUTGOING has no effect.
const ignoreOutgoing = 0x4000

const groupFlags = unix.PACKET_FANOUT_EBPF | ignoreOutgoing

// group is the receiving halves of an end whose frames are spread.
//
// Concurrency contract: the End's.
type group struct {
	size int // how many halves there are to be; 0 while frames aren't spread
	id   int // the kernel's
	rxs  []*Rx
}

// Spread implements port.Spreader.
func (e *End) Spread(n int) port.Spreading {
	if e.Attach == nil || n < 2 {
		return port.Single
	}
	e.group.size = n
	return port.Strict
}

// openSpread opens the next half of the group. The slots of the end are shared out among them.
func (e *End) openSpread(w port.Worker) (*Rx, error) {
	c := e.RxConfig
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	for n := 1; n < e.group.size && c.Slots > 2; n *= 2 {
		c.Slots /= 2
	}
	r, err := openRx(c, w, &e.group)
	if err != nil {
		return nil, err
	}
	if err := e.group.join(r, e.Attach); err != nil {
		return nil, errors.Join(fmt.Errorf("spread frames of interface %d: %w", c.Ifindex, err), r.Close())
	}
	return r, nil
}

// join makes r the next of the group. The last one lets the frames in.
func (g *group) join(r *Rx, attach func(int) error) error {
	first := len(g.rxs) == 0
	arg := g.id | groupFlags<<16
	if first {
		arg = (groupFlags | unix.PACKET_FANOUT_FLAG_UNIQUEID) << 16
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
		return fmt.Errorf("join fan-out group: %w", err)
	}
	g.rxs = append(g.rxs, r)
	if first {
		v, err := unix.GetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
		if err != nil {
			return fmt.Errorf("read number of fan-out group: %w", err)
		}
		g.id = v & 0xffff
		if err := attach(r.fd); err != nil {
			return err
		}
	}
	if len(g.rxs) < g.size {
		return nil
	}
	for _, r := range g.rxs {
		if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
			return fmt.Errorf("let frames in: %w", err)
		}
	}
	return nil
}

// leave takes a half that closes out of the group. The last one ends it.
func (g *group) leave(r *Rx) {
	g.rxs = slices.DeleteFunc(g.rxs, func(have *Rx) bool { return have == r })
	if len(g.rxs) == 0 {
		*g = group{}
	}
}

// deafen lets a socket receive nothing.
func deafen(fd int) error {
	refuse := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &refuse[0]})
	if err != nil {
		return fmt.Errorf("set filter of packet socket: %w", err)
	}
	return nil
}

// rejoin puts all sockets of the group back into the order of their creation, after r's
// has left and joined again. An interface that is down does that when it comes up.
func (r *Rx) rejoin() error {
	ifr, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	ifr.SetUint32(uint32(r.ifindex))
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFNAME, ifr); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	flags := ifr.Uint16()
	if flags&unix.IFF_UP == 0 {
		return nil
	}
	ifr.SetUint16(flags &^ unix.IFF_UP)
	if err := unix.IoctlIfreq(r.fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(flags)
	return unix.IoctlIfreq(r.fd, unix.SIOCSIFFLAGS, ifr)
}
