package porttest

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Veth is a veth pair that joins two namespaces, both sides up.
//
//	inner namespace           outer namespace
//	Inner (a host's side) ─── Outer (the port's side)
type Veth struct {
	OuterNS, InnerNS       *NS
	Outer, Inner           string // names
	OuterIndex, InnerIndex int
}

// NewVeth makes a veth pair with the given number of queues and waits until frames pass.
func NewVeth(t testing.TB, outer, inner *NS, name string, mtu, queues int) *Veth {
	t.Helper()
	v := &Veth{OuterNS: outer, InnerNS: inner, Outer: name + "o", Inner: name + "i"}
	err := outer.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:       netlink.LinkAttrs{Name: v.Outer, MTU: mtu, NumTxQueues: queues, NumRxQueues: queues, TxQLen: -1},
			PeerName:        v.Inner,
			PeerNamespace:   netlink.NsFd(inner.FD()),
			PeerMTU:         uint32(mtu),
			PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues),
		})
	})
	if err != nil {
		t.Fatalf("make veth %s: %v", name, err)
	}
	for _, s := range []struct {
		ns    *NS
		name  string
		index *int
	}{{outer, v.Outer, &v.OuterIndex}, {inner, v.Inner, &v.InnerIndex}} {
		if err := s.ns.Do(func() (err error) { *s.index, err = ifindex(s.name); return err }); err != nil {
			t.Fatal(err)
		}
		if err := SetLink(s.ns, s.name, true); err != nil {
			t.Fatal(err)
		}
	}
	WaitRunning(t, outer, v.Outer)
	WaitRunning(t, inner, v.Inner)
	return v
}

func ifindex(name string) (int, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", name, err)
	}
	return i.Index, nil
}

// SetLink sets an interface up or down.
func SetLink(ns *NS, name string, up bool) error {
	return onLink(ns, name, func(l netlink.Link) error {
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}

// DeleteLink deletes an interface.
func DeleteLink(ns *NS, name string) error { return onLink(ns, name, netlink.LinkDel) }

func onLink(ns *NS, name string, fn func(netlink.Link) error) error {
	return ns.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("look up %s: %w", name, err)
		}
		return fn(l)
	})
}

// WaitRunning waits until the kernel lets frames through an interface: it does
// so a while after the carrier came.
func WaitRunning(t testing.TB, ns *NS, name string) {
	t.Helper()
	running := func() bool {
		var flags uint32
		err := onLink(ns, name, func(l netlink.Link) error { flags = l.Attrs().RawFlags; return nil })
		return err == nil && flags&unix.IFF_RUNNING != 0
	}
	waitUntil(t, name+" to run", running)
	running() // one more round trip: the queues were made ready in the same rtnl section
}

// AddAddr gives an interface an address, written as 10.0.0.1/24.
func AddAddr(ns *NS, ifname, cidr string) error {
	return onLink(ns, ifname, func(l netlink.Link) error {
		a, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(l, a)
	})
}
