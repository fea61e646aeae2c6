package bench

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// Topology is what is measured: frames that enter at the load's interface should come out at the sink's.
type Topology interface {
	// Load and Sink are inner ends: descriptor of the namespace and index of the interface, both borrowed until Close.
	Load() (netns, ifindex int)
	Sink() (netns, ifindex int)
	Close() error
}

// Gateway is a Topology that routes: frames must carry its address.
type Gateway interface{ Gateway() wire.MAC }

// Wide is a Topology with several ways side by side: further interfaces, in the namespaces of Load and Sink.
type Wide interface{ Also() (load, sink []int) }

// Stacked is a Topology that may want its frames counted as socket buffers though they enter as XDP frames, to be compared
// with one whose sink can't be an XDP program.
type Stacked interface{ CountSkbs() bool }

// counted is how the sink counts: like the load sends, unless its interface has an XDP program already, which what is
// measured has put there, or topo wants it otherwise.
func counted(topo Topology, mode load.Mode) (load.Mode, error) {
	if s, ok := topo.(Stacked); mode == load.Skb || ok && s.CountSkbs() {
		return load.Skb, nil
	}
	ns, ifindex := topo.Sink()
	err := netns.Do(ns, func() error {
		l, err := netlink.LinkByIndex(ifindex)
		if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			mode = load.Skb
		}
		return err
	})
	if err != nil {
		return mode, fmt.Errorf("look at interface %d: %w", ifindex, err)
	}
	return mode, nil
}

// aim completes cfg with what topo says.
func aim(cfg *load.Config, topo Topology) (err error) {
	cfg.NetNS, cfg.Ifindex = topo.Load()
	if cfg.SrcMAC == (wire.MAC{}) {
		if cfg.SrcMAC, err = address(topo.Load()); err != nil {
			return err
		}
	}
	if cfg.DstMAC != (wire.MAC{}) {
		return nil
	}
	if g, ok := topo.(Gateway); ok {
		cfg.DstMAC = g.Gateway()
		return nil
	}
	cfg.DstMAC, err = address(topo.Sink())
	return err
}

// address reads the Ethernet address of an interface.
func address(ns, ifindex int) (mac wire.MAC, err error) {
	err = netns.Do(ns, func() error {
		l, err := netlink.LinkByIndex(ifindex)
		if err != nil {
			return err
		}
		copy(mac[:], l.Attrs().HardwareAddr)
		return nil
	})
	if err != nil {
		return mac, fmt.Errorf("read address of interface %d: %w", ifindex, err)
	}
	return mac, nil
}
