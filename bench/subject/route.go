package subject

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

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
