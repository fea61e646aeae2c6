package epair

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// A direct pair is one veth whose sides are the ends: nobody is in the middle.
//
//	a's namespace                 b's namespace
//	Name, tagged, down  ───────   Name, tagged, down
//
// Nothing of it is in the private namespace. That one has an id for each of the two others instead (rtnetlink's
// nsid), by which links of theirs can be read, watched and deleted; an id doesn't keep a
// namespace alive, and goes with it.

// createDirect makes both ends.
func (p *Pair) createDirect() error {
	for _, e := range p.ends() {
		e.mtu = p.cfg.MTU
		if err := e.setMAC(); err != nil {
			return err
		}
		if err := e.identify(); err != nil {
			return err
		}
	}
	var hs [2]*netlink.Handle
	for i, e := range p.ends() {
		h, err := open(e.ns)
		if err != nil {
			return err
		}
		defer h.Close()
		hs[i] = h
	}
	add := p.addDirect
	if p.kept != nil {
		add = p.moveDirect
	}
	if err := add(hs); err != nil {
		return err
	}
	for i, e := range p.ends() {
		if err := e.takeName(hs[i]); err != nil {
			return fmt.Errorf("%s: %w", e.label(), err)
		}
	}
	return nil
}

// addDirect adds the veth where its sides belong, and tags it.
func (p *Pair) addDirect(hs [2]*netlink.Handle) error {
	v, err := p.newDirect(hs[0], p.B.ns)
	if err != nil {
		return err
	}
	p.A.innerIndex = v.Index
	peer, err := hs[1].LinkByName(v.PeerName)
	if err != nil {
		return fmt.Errorf("look up far side: %w", err)
	}
	p.B.innerIndex = peer.Attrs().Index
	return p.tagDirect(hs, [2]int{p.A.innerIndex, p.B.innerIndex})
}

// moveDirect adds the veth in the private namespace, tags it, and moves its sides to where they belong: so no moment is left
// at which a crash leaves one without a tag. It takes longer.
func (p *Pair) moveDirect(hs [2]*netlink.Handle) (err error) {
	out := p.env.out
	v, err := p.newDirect(out, p.env.private)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && p.A.innerIndex == 0 && p.B.innerIndex == 0 { // both are still here, or gone
			err = errors.Join(err, delLink(out, v.Index))
		}
	}()
	peer, err := out.LinkByName(v.PeerName)
	if err != nil {
		return fmt.Errorf("look up far side: %w", err)
	}
	index := [2]int{v.Index, peer.Attrs().Index}
	if err := p.tagDirect([2]*netlink.Handle{out, out}, index); err != nil {
		return err
	}
	for i, e := range p.ends() {
		if err := p.env.step("move veth"); err != nil {
			return err
		}
		if err := out.LinkSetNsFd(at(index[i]), e.ns.FD()); err != nil {
			return fmt.Errorf("move it to its namespace: %w", err)
		}
		l, err := hs[i].LinkByName([]string{v.Name, v.PeerName}[i])
		if err != nil {
			return fmt.Errorf("look it up in its namespace: %w", err)
		}
		e.innerIndex = l.Attrs().Index
	}
	return nil
}

// newDirect adds the veth by h, with its far side in a namespace. One side has a big index, as outer sides have.
func (p *Pair) newDirect(h *netlink.Handle, far *netns.NS) (*netlink.Veth, error) {
	if err := p.env.step("add veth"); err != nil {
		return nil, err
	}
	v := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{
			Name: p.env.tempName('v'), Index: outerBase + p.env.number(), MTU: p.cfg.MTU, HardwareAddr: p.A.mac,
			TxQLen: -1, NumTxQueues: 1, NumRxQueues: 1,
		},
		PeerName: p.env.tempName('w'), PeerHardwareAddr: p.B.mac, PeerMTU: uint32(p.cfg.MTU), PeerNamespace: netlink.NsFd(far.FD()),
		PeerTxQLen: -1, PeerNumTxQueues: 1, PeerNumRxQueues: 1,
	}
	return v, addVeth(h, v)
}

func (p *Pair) tagDirect(hs [2]*netlink.Handle, index [2]int) error {
	if err := p.env.step("tag veth"); err != nil {
		return err
	}
	for i, e := range p.ends() {
		if err := hs[i].LinkSetAlias(at(index[i]), e.tag()); err != nil {
			return fmt.Errorf("tag it: %w", err)
		}
	}
	return nil
}

// identify finds the id that the private namespace has for the end's, or gives it one.
func (e *End) identify() error {
	if err := e.env.step("identify namespace"); err != nil {
		return err
	}
	const tries = 3 // somebody's veth may give it one at the same time
	for range tries {
		id, err := e.env.out.GetNetNsIdByFd(e.ns.FD())
		if err != nil {
			return fmt.Errorf("identify namespace: %w", err)
		}
		if id >= 0 {
			e.nsid = id
			return nil
		}
		if err := e.env.out.SetNetNsIdByFd(e.ns.FD(), -1); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("identify namespace: %w", err)
		}
	}
	return errors.New("identify namespace: the kernel gives it no id")
}

// far reads a link by its namespace's id. The error is errNoLink if there is no such link or namespace, or it isn't
// the end's.
func (e *End) far() (a *netlink.LinkAttrs, err error) {
	err = e.env.private.Do(func() error {
		msgs, err := e.farRequest(unix.RTM_GETLINK).Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
		if err != nil {
			return err
		}
		if len(msgs) != 1 {
			return fmt.Errorf("read link %d: %d answers", e.innerIndex, len(msgs))
		}
		l, err := netlink.LinkDeserialize(nil, msgs[0])
		if err == nil {
			a = l.Attrs()
		}
		return err
	})
	if noFar(err) || err == nil && a.Alias != e.tag() {
		return nil, errNoLink
	}
	return a, err
}

// noFar says whether an error means that there is no such link, or no such namespace.
func noFar(err error) bool { return missing(err) || errors.Is(err, unix.EINVAL) }

func (e *End) farRequest(what int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(what, unix.NLM_F_ACK)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(e.innerIndex)
	req.AddData(info)
	req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(e.nsid))))
	return req
}

// deleteDirect deletes all direct pairs, some at a time: the kernel waits for its readers after each.
func (e *Env) deleteDirect(pairs []*Pair) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, deleters)
	for _, p := range pairs {
		if !p.direct() || p.A.innerIndex == 0 {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			if err := p.deleteVeth(); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("delete pair %s: %w", p.cfg.Name, denied(err)))
				mu.Unlock()
			}
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// deleteVeth deletes a direct pair's veth by the side that is found where it was created: the
// other goes with it.
func (p *Pair) deleteVeth() error {
	for _, e := range p.ends() {
		if e.innerIndex == 0 {
			continue
		}
		err := e.deleteFar()
		if !errors.Is(err, errNoLink) {
			return err
		}
	}
	return nil
}

// deleteFar deletes the end's link if it has our tag, or none yet: then it was never out of our hands.
func (e *End) deleteFar() error {
	e.mu.Lock()
	fresh := e.ns != nil
	e.mu.Unlock()
	if _, err := e.far(); err != nil && !(fresh && errors.Is(err, errNoLink)) {
		return err
	}
	return e.env.private.Do(func() error {
		_, err := e.farRequest(unix.RTM_DELLINK).Execute(unix.NETLINK_ROUTE, 0)
		if noFar(err) {
			return errNoLink
		}
		return err
	})
}

// direct says whether the pair is one veth.
func (p *Pair) direct() bool { return p.cfg.Datapath == "direct" }
