package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// createVeth makes the end's veth: the outer side in the private namespace, up;
// the inner side straight in the end's namespace, down. No namespace in between sees it.
//
//	end's namespace              private namespace
//	Name, tagged, down  ───────  eUUIDv1, tagged, up, ARP off
//
// When tc is to stitch it with a dev end, the outer side is in that one's namespace instead: tc can't hand
// frames over to another.
func (e *End) createVeth() error {
	h, err := open(e.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return e.outside(func(out *netlink.Handle) error { return e.addVeth(h, out) })
}

func (e *End) addVeth(h, out *netlink.Handle) error {
	if err := e.env.step("add veth"); err != nil {
		return err
	}
	v := e.vethRequest()
	if err := addVeth(out, v); err != nil {
		return err
	}
	e.portIndex = v.Index
	inner, err := h.LinkByName(v.PeerName)
	if err != nil {
		return fmt.Errorf("look up inner side: %w", err)
	}
	e.innerIndex = inner.Attrs().Index
	if err := e.checkQueues(out, inner.Attrs()); err != nil {
		return err
	}
	if err := e.env.step("tag veth"); err != nil {
		return err
	}
	if err := errors.Join(h.LinkSetAlias(at(e.innerIndex), e.tag()), out.LinkSetAlias(at(e.portIndex), e.tag())); err != nil {
		return fmt.Errorf("tag it: %w", err)
	}
	if err := e.takeName(h); err != nil {
		return err
	}
	if err := e.env.step("set outer side up"); err != nil {
		return err
	}
	if err := e.silence(v.Name); err != nil {
		return err
	}
	if err := errors.Join(out.LinkSetARPOff(at(e.portIndex)), out.LinkSetUp(at(e.portIndex))); err != nil {
		return fmt.Errorf("set outer side up: %w", err)
	}
	return nil
}

// silence keeps the stack of a namespace that isn't ours from speaking IPv6 by an outer side there: neighbours and
// routers would be asked for as soon as it's up.
func (e *End) silence(name string) error {
	if e.outerNS == e.env.private {
		return nil
	}
	return e.outerNS.Do(func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 has no such file
			return fmt.Errorf("turn IPv6 off on the outer side: %w (needs a writable /proc/sys)", err)
		}
		return nil
	})
}

// outerBase is where the indexes of outer sides begin. Inner sides have small ones, so that the two of a
// veth never have the same: the kernel would take it for a device without a peer, and
// tell of a lost carrier up to a second late (linkwatch_urgent_event, net/core/link_watch.c).
const outerBase = 1 << 24

// addVeth adds a veth. In a namespace that isn't the private one another process may have given its index to one of its own, which may even
// have outlived it: then any other index will do.
func addVeth(h *netlink.Handle, v *netlink.Veth) error {
	const tries = 8
	for try := 1; ; try++ {
		err := h.LinkAdd(v)
		switch {
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("%w (this kernel has no veth: load the veth module)", err)
		case try == tries || !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY):
			return err
		}
		v.Index = outerBase + rand.IntN(math.MaxInt32-outerBase)
	}
}

// inQueues is how many queues lead from the inner side to the outer one. The way back has the
// Env's number always. With XDP on the outer side each queue is a ring, and the sender's CPU can be what
// picks it (PACKET_QDISC_BYPASS; AF_XDP its own): a flow whose sender moves would be in two
// rings, and only frames of one ring have an order.
func (e *End) inQueues() int {
	if e.rings {
		return 1
	}
	return e.env.queues
}

func (e *End) vethRequest() *netlink.Veth {
	in, out := e.inQueues(), e.env.queues
	return &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{
			Name: e.env.tempName('v'), Index: outerBase + e.env.number(), MTU: e.mtu,
			TxQLen: -1, NumTxQueues: out, NumRxQueues: in,
		},
		PeerName: e.env.tempName('w'), PeerHardwareAddr: e.mac, PeerMTU: uint32(e.mtu), PeerNamespace: netlink.NsFd(e.ns.FD()),
		PeerTxQLen: -1, PeerNumTxQueues: uint32(in), PeerNumRxQueues: uint32(out),
	}
}

// checkQueues makes sure that both sides have as many queues as asked for: frames
// sent to a queue that isn't there vanish without an error.
func (e *End) checkQueues(out *netlink.Handle, inner *netlink.LinkAttrs) error {
	outer, err := out.LinkByIndex(e.portIndex)
	if err != nil {
		return fmt.Errorf("look up outer side: %w", err)
	}
	away, home := e.inQueues(), e.env.queues
	for _, x := range []struct {
		*netlink.LinkAttrs
		rx, tx int
	}{{inner, home, away}, {outer.Attrs(), away, home}} {
		if x.NumRxQueues != x.rx || x.NumTxQueues != x.tx {
			return fmt.Errorf("%s has %d receive and %d transmit queues, not %d and %d (use fewer workers)", x.Name, x.NumRxQueues, x.NumTxQueues, x.rx, x.tx)
		}
	}
	return nil
}

// takeName gives the end's interface its final name. It has its tag already: whoever finds an interface
// of ours by its name, also after a crash, knows that it's ours. When an orphan
// of ours has the name, it is removed.
func (e *End) takeName(h *netlink.Handle) error {
	const tries = 3 // somebody else may create or delete one at the same time
	for try := 1; ; try++ {
		if err := e.env.step("take name"); err != nil {
			return err
		}
		if err := e.clearName(h); err != nil {
			return err
		}
		err := h.LinkSetName(at(e.innerIndex), e.cfg.Name)
		if !errors.Is(err, unix.EEXIST) || try == tries {
			return err
		}
	}
}

// clearName makes sure that no interface in the end's namespace has the end's name.
// Only an orphan of ours is removed.
func (e *End) clearName(h *netlink.Handle) error {
	l, err := h.LinkByName(e.cfg.Name)
	if missing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up name: %w", err)
	}
	alias := l.Attrs().Alias
	o, err := e.env.inst.owner(alias)
	if err != nil {
		return err
	}
	if o == live && e.env.looksAfter(alias) {
		o = own
	}
	const cure = "(choose another name or remove it)"
	if kept := e.env.inst.keptPair(alias); o == orphan && kept != "" {
		return fmt.Errorf("%w by persistent pair %s, which no daemon looks after (choose another name, or: epair gc --all)", ErrTaken, kept)
	}
	switch o {
	case orphan:
		if err := delLink(h, l.Attrs().Index); err != nil {
			return fmt.Errorf("remove what a crash left: %w", err)
		}
		return nil
	case own:
		return fmt.Errorf("%w by another end of this epair, %s (choose another name)", ErrTaken, alias)
	case live:
		return fmt.Errorf("%w by an interface of another epair, which runs (choose another name)", ErrTaken)
	case unproven:
		return fmt.Errorf("%w by an interface of an epair that isn't known here %s", ErrTaken, cure)
	}
	return fmt.Errorf("%w by an interface that is not epair's %s", ErrTaken, cure)
}

// ErrTaken says that an interface which isn't ours has the name.
var ErrTaken = errors.New("name is taken")
