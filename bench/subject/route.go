package subject

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// Addresses of the jail's hops; the load's own networks are those of RFC 2544.
const (
	inAddr  = "192.0.2.1/30"
	inHop   = "192.0.2.2"
	outAddr = "192.0.2.5/30"
	outHop  = "192.0.2.6"
)

// route makes a namespace a router from the load's network to the sink's, with all that would be asked for by ARP
// known before. It returns the Ethernet address of the near end.
func route(jail *netns.NS, load, sink topo.End) (mac wire.MAC, err error) {
	near, err := hardware(load.NS, topo.LoadName)
	if err != nil {
		return mac, err
	}
	far, err := hardware(sink.NS, topo.SinkName)
	if err != nil {
		return mac, err
	}
	err = jail.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			return err
		}
		in, err := hop(topo.InName, inAddr, inHop, wire.SrcNet(), near)
		if err != nil {
			return err
		}
		copy(mac[:], in.Attrs().HardwareAddr)
		_, err = hop(topo.OutName, outAddr, outHop, wire.DstNet(), far)
		return err
	})
	if err != nil {
		return mac, fmt.Errorf("set up routing: %w", err)
	}
	return mac, nil
}

// Of the jail's hops over IPv6.
const (
	inAddr6  = "2001:db8:1::1/64"
	inHop6   = "2001:db8:1::2"
	outAddr6 = "2001:db8:2::1/64"
	outHop6  = "2001:db8:2::2"
)

// route6 makes the router route IPv6, too. What it says by itself (neighbour discovery) nobody counts.
func route6(jail *netns.NS, load, sink topo.End) error {
	near, err := hardware(load.NS, topo.LoadName)
	if err != nil {
		return err
	}
	far, err := hardware(sink.NS, topo.SinkName)
	if err != nil {
		return err
	}
	err = jail.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0); err != nil {
			return err
		}
		if err := hop6(topo.InName, inAddr6, inHop6, wire.SrcNet6(), near); err != nil {
			return err
		}
		return hop6(topo.OutName, outAddr6, outHop6, wire.DstNet6(), far)
	})
	if err != nil {
		return fmt.Errorf("set up routing of ipv6: %w", err)
	}
	return nil
}

func hop6(name, addr, next string, behind netip.Prefix, mac net.HardwareAddr) error {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("0"), 0); err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrReplace(l, a); err != nil {
		return err
	}
	ip := net.ParseIP(next)
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: mac}); err != nil {
		return err
	}
	dst := &net.IPNet{IP: behind.Addr().AsSlice(), Mask: net.CIDRMask(behind.Bits(), 128)}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: ip})
}

// hop gives an interface its address and the way to a network behind a neighbour, whose address is made up unless given.
func hop(name, addr, next string, behind netip.Prefix, mac net.HardwareAddr) (netlink.Link, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	if err := netlink.AddrReplace(l, a); err != nil {
		return nil, err
	}
	ip, flags := net.ParseIP(next), 0
	if next == "" {
		ip, flags = net.IPv4(192, 0, 2, 9), int(netlink.FLAG_ONLINK)
	}
	err = netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: mac})
	if err != nil {
		return nil, err
	}
	dst := &net.IPNet{IP: behind.Addr().AsSlice(), Mask: net.CIDRMask(behind.Bits(), 32)}
	return l, netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: ip, Flags: flags})
}

func hardware(ns *netns.NS, name string) (mac net.HardwareAddr, err error) {
	err = ns.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	return mac, err
}
