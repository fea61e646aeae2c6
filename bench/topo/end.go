package topo

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// Space makes a namespace in which nothing sends by itself.
func Space() (*netns.NS, error) {
	ns, err := netns.NewAnonymous()
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil // without IPv6
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("silence namespace: %w", err), ns.Close())
	}
	return ns, nil
}

// veth joins two namespaces and returns when frames pass.
func veth(a *netns.NS, nameA string, b *netns.NS, nameB string, mtu int) (endA, endB End, err error) {
	err = a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = nameA, mtu
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.FD())})
	})
	if err != nil {
		return endA, endB, fmt.Errorf("make veth %s-%s: %w", nameA, nameB, err)
	}
	if endA, err = Up(a, nameA); err != nil {
		return endA, endB, err
	}
	if endB, err = Up(b, nameB); err != nil {
		return endA, endB, err
	}
	return endA, endB, errors.Join(Await(endA), Await(endB))
}

// Up sets an interface up, without ARP.
func Up(ns *netns.NS, name string) (e End, err error) {
	err = ns.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		e = End{ns, l.Attrs().Index}
		return errors.Join(netlink.LinkSetARPOff(l), netlink.LinkSetUp(l))
	})
	if err != nil {
		return e, fmt.Errorf("set %s up: %w", name, err)
	}
	return e, nil
}

// upTime bounds how long the kernel's link watch takes: up to a second on an idle machine.
const upTime = 20 * time.Second

// Await returns when an interface is running and its queue active: the latter follows the former, but not later than
// one more round trip to the kernel.
func Await(e End) error {
	return e.NS.Do(func() error {
		for limit := time.Now().Add(upTime); ; time.Sleep(2 * time.Millisecond) {
			l, err := netlink.LinkByIndex(e.Index)
			if err != nil {
				return fmt.Errorf("await interface %d: %w", e.Index, err)
			}
			if l.Attrs().RawFlags&unix.IFF_RUNNING != 0 {
				_, err = netlink.LinkByIndex(e.Index)
				return err
			}
			if time.Now().After(limit) {
				return fmt.Errorf("await %s: not running after %s", l.Attrs().Name, upTime)
			}
		}
	})
}

// NAPI makes a veth's end receive by a NAPI, without which redirected XDP frames vanish.
func NAPI(e End) error {
	return e.NS.Do(func() error {
		l, err := netlink.LinkByIndex(e.Index)
		if err != nil {
			return fmt.Errorf("turn gro on: %w", err)
		}
		_, err = ethtool.SetFeatures(l.Attrs().Name, map[string]bool{"rx-gro": true})
		return err
	})
}
