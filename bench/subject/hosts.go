package subject

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// Addresses gives both ends addresses and the ways to each other, for sockets, and returns them. Nobody needs to
// ask for anything by ARP.
func (s *Setup) Addresses() (load, sink netip.Addr, err error) {
	return s.addresses(s.sink, topo.SinkName, s.load, topo.LoadName)
}

// Addresses goes through the router.
func (r *Routed) Addresses() (load, sink netip.Addr, err error) {
	return r.addresses(r.jail, topo.InName, r.jail, topo.OutName)
}

// addresses takes the neighbours that load and sink reach first.
func (s *Setup) addresses(nearLoad topo.End, loadHop string, nearSink topo.End, sinkHop string) (load, sink netip.Addr, err error) {
	load, sink = wire.SrcNet().Addr().Next(), wire.DstNet().Addr().Next()
	l, err := hardware(nearLoad.NS, loadHop)
	if err == nil {
		err = host(s.load.NS, topo.LoadName, load, wire.DstNet(), l)
	}
	if err == nil {
		l, err = hardware(nearSink.NS, sinkHop)
	}
	if err == nil {
		err = host(s.sink.NS, topo.SinkName, sink, wire.SrcNet(), l)
	}
	if err != nil {
		return load, sink, fmt.Errorf("give ends addresses: %w", err)
	}
	return load, sink, nil
}

// host gives an interface an address, and a network behind a neighbour.
func host(ns *netns.NS, name string, addr netip.Addr, behind netip.Prefix, mac net.HardwareAddr) error {
	return ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		_, err = hop(name, addr.String()+"/32", "", behind, mac)
		return err
	})
}

// FinishFrames turns off what leaves frames unfinished at ends: a forwarder that knows nothing of checksums passes
// them on broken.
func FinishFrames(ends ...topo.End) error {
	var errs []error
	for _, e := range ends {
		errs = append(errs, e.NS.Do(func() error {
			l, err := netlink.LinkByIndex(e.Index)
			if err == nil {
				_, err = ethtool.SetFeatures(l.Attrs().Name, map[string]bool{"tx-checksum-ip-generic": false})
			}
			return err
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("turn checksum offload off: %w", err)
	}
	return nil
}
