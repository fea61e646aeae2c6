package epair

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// End is one end of a pair.
//
//	             in the end's namespace          what ports open
//	veth         Name, InnerIndex                NetnsFD, Ifindex: the outer side
//	tap          Name, InnerIndex                TapFD, TapQueues
//	dev          Name, InnerIndex = Ifindex      NetnsFD, Ifindex: the same interface
//	direct pair  Name, InnerIndex                nothing
type End struct {
	env  *Env
	inst *instance // whose tag it has: the Env's, or the persistent pair's own
	pair string
	side byte // 'a' or 'b'
	cfg  EndConfig
	mtu  int
	// rings: what the port receives from are rings of the device's queues, not its one stream.
	rings bool
	// fanned: the kernel may spread what the port receives over one queue of a tap per worker.
	fanned bool
	mac    net.HardwareAddr

	portIndex  int       // of the device that ports open; 0 while there is none
	innerIndex int       // of the device in the end's namespace
	direct     bool      // of a direct pair
	nsid       int       // direct: the private namespace's id of the end's
	outerNS    *netns.NS // veth: where its outer side is; placeOuter
	devNS      *netns.NS // dev: its namespace, which stays open until Delete
	nsPath     string    // dev: where it was opened

	state atomic.Int32 // State; written by the monitor, read by anyone

	mu      sync.Mutex      // guards what follows
	ns      *netns.NS       // the end's namespace; a veth and a tap keep it from Create to Up only
	owned   bool            // the namespace is ours
	claimed bool            // dev: in Env.devs
	tapFD   int             // -1 unless there is one
	tapMore []int           // a tap's further queues
	base    map[string]bool // veth: offloads that we changed, as they were first
}

func newEnd(env *Env, c *PairConfig, side byte, cfg EndConfig) *End {
	e := &End{env: env, inst: env.inst, pair: c.Name, side: side, cfg: cfg, mtu: c.MTU, tapFD: -1, direct: c.Datapath == "direct"}
	e.outerNS = env.private
	e.rings = c.Port == "xdp"
	e.fanned = c.Mode == "pool" && !e.rings
	e.state.Store(int32(Down)) // until the monitor knows better
	return e
}

// Side is "a" or "b".
func (e *End) Side() string { return string(e.side) }

// Kind is "veth", "tap" or "dev".
func (e *End) Kind() string { return e.cfg.Kind }

// Name is the interface's name in the end's namespace.
func (e *End) Name() string { return e.cfg.Name }

// Netns is the reference by which the namespace was named.
func (e *End) Netns() string { return e.cfg.netns() }

// MTU is the end's MTU when it was created.
func (e *End) MTU() int { return e.mtu }

// MAC is the address of the interface in the end's namespace.
func (e *End) MAC() net.HardwareAddr { return slices.Clone(e.mac) }

// Addresses are those that Up gives to the interface.
func (e *End) Addresses() []string { return slices.Clone(e.cfg.Addresses) }

// NetnsFD is the namespace in which ports find Ifindex; -1 for a tap and in a direct pair.
// borrowed: valid until the pair is deleted.
func (e *End) NetnsFD() int {
	if ns := e.portSpace(); ns != nil {
		return ns.FD()
	}
	return -1
}

// Ifindex is the device that ports open, in the namespace NetnsFD.
func (e *End) Ifindex() int { return e.portIndex }

// InnerIndex is the interface in the end's namespace.
func (e *End) InnerIndex() int { return e.innerIndex }

// TapFD is a tap's queue: a non-blocking descriptor with virtio_net_hdr; -1 for other kinds. As
// long as it's open the device exists.
// borrowed: valid until the pair is deleted. A port keeps a duplicate.
func (e *End) TapFD() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tapFD
}

// State says how the end is. It costs nothing, and is late by a second at most.
func (e *End) State() State { return State(e.state.Load()) }

// portSpace is the namespace of the device that ports open; nil for a tap and in a direct pair.
func (e *End) portSpace() *netns.NS {
	switch {
	case e.direct:
		return nil
	case e.cfg.Kind == Veth:
		return e.outerNS
	case e.cfg.Kind == Dev:
		return e.devNS
	}
	return nil
}

// tag is the ifalias of what we create for the end.
func (e *End) tag() string { return e.inst.linkTag(e.pair, e.side) }

// label is how errors call the end's interface.
func (e *End) label() string {
	return fmt.Sprintf("%s %s in %s", e.cfg.Kind, e.cfg.Name, e.cfg.netns())
}

// inside runs fn with the end's namespace, after it has made sure that the interface is still there.
// The namespace is held only meanwhile.
func (e *End) inside(fn func(*netns.NS, *netlink.Handle) error) error {
	ns, err := e.space()
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := open(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByIndex(e.innerIndex)
	if missing(err) || err == nil && e.cfg.Kind != Dev && l.Attrs().Alias != e.tag() {
		return errNoLink
	}
	if err != nil {
		return err
	}
	return fn(ns, h)
}

// outside runs fn with the namespace of a veth's outer side.
func (e *End) outside(fn func(*netlink.Handle) error) error {
	if e.outerNS == e.env.private {
		return fn(e.env.out)
	}
	h, err := open(e.outerNS)
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

// space opens what should be the end's namespace: the name may have been given to another.
func (e *End) space() (ns *netns.NS, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ns != nil:
		ns, err = netns.Open(fdPath(e.ns.FD()))
	case e.tapFD >= 0:
		var fd int
		fd, err = unix.IoctlRetInt(e.tapFD, unix.TUNGETDEVNETNS)
		switch {
		case err == nil:
			ns, err = netns.Open(fdPath(fd))
			unix.Close(fd)
		case errors.Is(err, unix.EINVAL): // the namespace is ending (get_net_ns)
			err = errNoLink
		}
	default:
		ns, err = netns.Open(e.cfg.netns())
	}
	if errors.Is(err, netns.ErrNotExist) || errors.Is(err, unix.EBADFD) {
		return nil, errNoLink
	}
	return ns, err
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Space opens the end's namespace, for those who want to look into it or to
// start something there. It lives as long as the result is open.
func (e *End) Space() (ns *netns.NS, err error) {
	err = e.inside(func(own *netns.NS, _ *netlink.Handle) (err error) {
		ns, err = netns.Open(fdPath(own.FD()))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open namespace of %s: %w", e.label(), err)
	}
	return ns, nil
}

// closeSpace lets the end's namespace go.
func (e *End) closeSpace() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ns == nil {
		return nil
	}
	err := e.ns.Close()
	e.ns = nil
	return err
}
