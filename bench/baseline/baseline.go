// Package baseline makes what epair is compared with: the kernel's own ways to join two interfaces, each as bare as
// it can be, and other programs that do it in user space.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/netns"
)

// All returns the baselines, the simplest first.
func All() []subject.Subject {
	both, frame := []load.Mode{load.Frame, load.Skb}, []load.Mode{load.Frame}
	all := []subject.Subject{
		{Name: "veth", Modes: both, OnLoad: true, Path: "veth pair", Join: joinVeth},
		{Name: "bridge", Modes: both, OnLoad: true, Path: "veth → Linux bridge → veth", Join: split(bridge)},
		{Name: "tc-redirect", Modes: both, OnLoad: true, Path: "veth → tcx ingress bpf_redirect → veth", Join: split(tcRedirect)},
		{Name: "xdp-redirect", Modes: frame, OnLoad: true, Path: "veth → XDP devmap redirect → veth", Join: split(xdpRedirect)},
		{Name: "asavie", Modes: frame, Path: "veth → asavie/xdp l2fwd → veth", Join: split(asavie)},
		{Name: "ovs", Modes: frame, Path: "veth → Open vSwitch (netdev) → veth", Join: split(ovs)},
		{Name: "dpdk-af_packet", Modes: frame, Path: "veth → testpmd io, net_af_packet → veth", Join: split(testpmd("net_af_packet"))},
		{Name: "dpdk-af_xdp", Modes: frame, Path: "veth → testpmd io, net_af_xdp → veth", Join: split(testpmd("net_af_xdp"))},
	}
	for i := range all {
		all[i].Baseline = true
	}
	return all
}

// closers close in reverse order.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		errs = append(errs, c[i].Close())
	}
	return errors.Join(errs...)
}

// closeFunc is a Close.
type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// joinVeth makes each link one veth. It has nothing to close: interfaces go with their namespaces.
func joinVeth(_ context.Context, o subject.Options, links []subject.Link) (subject.Made, error) {
	for _, l := range links {
		a, b, err := veth(l.A, l.NameA, l.B, l.NameB, o.MTU)
		if err != nil {
			return subject.Made{}, err
		}
		if o.Mode == load.Frame {
			if err := errors.Join(topo.NAPI(a), topo.NAPI(b)); err != nil {
				return subject.Made{}, err
			}
		}
	}
	return subject.Made{Closer: closers{}}, nil
}

// ends are those of the two veths that a link is split into.
type ends struct{ a, in, out, b topo.End }

// mid is the namespace between.
func (e *ends) mid() *netns.NS { return e.in.NS }

// napi makes all ends receive by NAPI: redirected XDP frames reach no other veth.
func (e *ends) napi() error {
	return errors.Join(topo.NAPI(e.a), topo.NAPI(e.in), topo.NAPI(e.out), topo.NAPI(e.b))
}

// plain makes both ends send finished frames if sockets are to send: for forwarders that know nothing of checksums.
func (e *ends) plain(o subject.Options) error {
	if !o.Sockets {
		return nil
	}
	return subject.FinishFrames(e.a, e.b)
}

// middle joins in and out, whose names are topo.InName and topo.OutName.
type middle func(ctx context.Context, o subject.Options, e ends) (subject.Made, error)

// joiner is a subject's Join.
type joiner = func(context.Context, subject.Options, []subject.Link) (subject.Made, error)

// split makes each link two veths with a namespace between, in which join works.
func split(join middle) joiner {
	return func(ctx context.Context, o subject.Options, links []subject.Link) (made subject.Made, err error) {
		var all closers
		defer func() {
			if err != nil {
				err = errors.Join(err, all.Close())
			}
		}()
		for _, l := range links {
			mid, err := topo.Space()
			if err != nil {
				return made, err
			}
			all = append(all, mid)
			m, err := splitLink(ctx, o, l, mid, join)
			if err != nil {
				return made, err
			}
			if m.Closer != nil {
				all = append(all, m.Closer)
			}
			made.Commands, made.Why = append(made.Commands, m.Commands...), append(made.Why, m.Why...)
		}
		made.Closer = all
		return made, nil
	}
}

func splitLink(ctx context.Context, o subject.Options, l subject.Link, mid *netns.NS, join middle) (m subject.Made, err error) {
	var e ends
	if e.a, e.in, err = veth(l.A, l.NameA, mid, topo.InName, o.MTU); err != nil {
		return m, err
	}
	if e.out, e.b, err = veth(mid, topo.OutName, l.B, l.NameB, o.MTU); err != nil {
		return m, err
	}
	if o.Mode == load.Frame {
		if err := e.napi(); err != nil {
			return m, err
		}
	}
	return join(ctx, o, e)
}

// veth makes a veth whose sides are up and running.
func veth(a *netns.NS, nameA string, b *netns.NS, nameB string, mtu int) (endA, endB topo.End, err error) {
	err = a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = nameA, mtu
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.FD())})
	})
	if err != nil {
		return endA, endB, fmt.Errorf("make veth %s-%s: %w", nameA, nameB, err)
	}
	if endA, err = topo.Up(a, nameA); err != nil {
		return endA, endB, err
	}
	if endB, err = topo.Up(b, nameB); err != nil {
		return endA, endB, err
	}
	return endA, endB, errors.Join(topo.Await(endA), topo.Await(endB))
}

// bridge joins by a bridge that does nothing but switch.
func bridge(_ context.Context, _ subject.Options, e ends) (m subject.Made, err error) {
	const name = "br"
	err = e.mid().Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		snoop := false
		br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snoop}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		for _, e := range []topo.End{e.in, e.out} {
			l, err := netlink.LinkByIndex(e.Index)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(l, br); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		var br topo.End
		if br, err = topo.Up(e.mid(), name); err == nil {
			err = topo.Await(br)
		}
	}
	if err != nil {
		return m, fmt.Errorf("make bridge: %w", err)
	}
	return m, nil // the bridge goes with its namespace
}
