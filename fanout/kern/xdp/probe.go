package xdp

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
	"github.com/epair-net/epair/rss"
)

// Probe tries each mode on a pair of its own, in a namespace of its own, and returns why it doesn't work here, with
// what to do about it; nil if it does. It takes up to a second.
func Probe() map[kern.Mode]error {
	result := map[kern.Mode]error{}
	all := func(err error) map[kern.Mode]error {
		for _, m := range []kern.Mode{kern.Inline, kern.Pool, kern.Poller} {
			result[m] = err
		}
		return result
	}
	p, err := probePolicy()
	if err != nil {
		return all(err)
	}
	defer p.Close()
	ns, c, err := probePair(p)
	if err != nil {
		return all(err)
	}
	defer ns.Close()
	x, err := New(c)
	if err != nil {
		return all(err)
	}
	defer x.Close()
	for _, m := range []kern.Mode{kern.Pool, kern.Poller} {
		_, result[m] = x.SetMode(m)
	}
	_, result[kern.Inline] = x.SetMode(kern.Inline)
	return result
}

func probePolicy() (*kern.Policy, error) {
	set, err := cpus.Allowed()
	if err != nil {
		return nil, err
	}
	h, err := rss.New(rss.Config{})
	if err != nil {
		return nil, err
	}
	t, err := rss.ParseTable("", 0, len(set))
	if err != nil {
		return nil, err
	}
	return kern.NewPolicy(h, t, set)
}

// probePair makes the devices of a pair, all in one namespace, with which they go.
func probePair(p *kern.Policy) (ns *netns.NS, c kern.Config, err error) {
	if ns, err = netns.NewAnonymous(); err != nil {
		return nil, c, caps.Explain(err, caps.SysAdmin)
	}
	c = kern.Config{Name: "probe", Mode: kern.Inline, Policy: p}
	err = ns.Do(func() error {
		for name, e := range map[string]*kern.End{"a": &c.A, "b": &c.B} {
			if err := probeVeth(ns.FD(), name, e); err != nil {
				return fmt.Errorf("make veth: %w", caps.Explain(err, caps.NetAdmin))
			}
		}
		return nil
	})
	if err != nil {
		return nil, c, errors.Join(err, ns.Close())
	}
	return ns, c, nil
}

func probeVeth(ns int, name string, e *kern.End) error {
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name + "o", TxQLen: -1}, PeerName: name + "i"})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w (this kernel has no veth: load the veth module)", err)
	}
	if err != nil {
		return err
	}
	for n, d := range map[string]*kern.Device{name + "o": &e.Outer, name + "i": &e.Inner} {
		l, err := netlink.LinkByName(n)
		if err != nil {
			return err
		}
		*d = kern.Device{NetNS: ns, Ifindex: l.Attrs().Index, Name: n}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	e.Owned = true
	return finishFrames(e.Inner.Name)
}

// finishFrames lets an interface finish its frames before it sends them; see finished.
func finishFrames(name string) error {
	all, err := ethtool.Features(name)
	if err != nil {
		return err
	}
	off := map[string]bool{}
	for f, v := range all {
		if v.On && unfinished(f) {
			off[f] = false
		}
	}
	_, err = ethtool.SetFeatures(name, off)
	return err
}
