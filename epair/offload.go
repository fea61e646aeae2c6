package epair

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// Carry says what can cross a pair with a frame.
type Carry int

const (
	// CarryVNet: a virtio_net_hdr, so checksums of TCP and UDP, and their segmentation, may
	// be left to the far side.
	CarryVNet Carry = iota
	// CarryNothing: the bytes alone (AF_XDP), so frames must be finished, tags in place.
	CarryNothing
	// CarryAll: the frame as the kernel has it, so every offload (direct, tc).
	CarryAll
)

// carried are the segmentation offloads that struct virtio_net_hdr has a type for (virtio 1.2, 5.1.6.2).
var carried = map[string]bool{
	"tx-tcp-segmentation": true, "tx-tcp6-segmentation": true, "tx-tcp-ecn-segmentation": true, "tx-udp-segmentation": true,
}

// inSoftware is the feature by which the stack itself segments, late but before the device.
const inSoftware = "tx-generic-segmentation"

// mustBeOff says whether an end may not use an offload.
//
// SCTP's CRC32c is among them always: a virtio_net_hdr asks for the Internet checksum.
func (c Carry) mustBeOff(feature string) bool {
	if c == CarryAll {
		return false
	}
	gso := strings.HasPrefix(feature, "tx-") && strings.HasSuffix(feature, "-segmentation") && feature != inSoftware ||
		feature == "tx-gso-partial" || feature == "tx-gso-list"
	checksum := strings.HasPrefix(feature, "tx-checksum-")
	special := feature == "tx-checksum-sctp" || feature == "tx-checksum-fcoe-crc"
	if c == CarryVNet {
		return gso && !carried[feature] || special
	}
	return gso || checksum || feature == "tx-vlan-hw-insert" || feature == "tx-vlan-stag-hw-insert"
}

// SetOffloads turns off, on the end's interface, what c can't carry, and
// back on what an earlier call turned off and c can. Only an interface that we created is
// changed: the veth. A tap never uses what it can't carry.
func (e *End) SetOffloads(c Carry) error {
	if e.cfg.Kind == TAP && c == CarryVNet {
		return nil
	}
	err := e.env.begin()
	if err == nil {
		defer e.env.life.RUnlock()
	}
	switch {
	case err != nil:
	case e.cfg.Kind != Veth:
		err = fmt.Errorf("%w (only of a veth end, which epair created)", errors.ErrUnsupported)
	default:
		err = e.inside(func(ns *netns.NS, h *netlink.Handle) error { return e.setOffloads(ns, h, c) })
	}
	if err != nil {
		return fmt.Errorf("set offloads of %s: %w", e.label(), denied(err))
	}
	return nil
}

func (e *End) setOffloads(ns *netns.NS, h *netlink.Handle, c Carry) error {
	l, err := h.LinkByIndex(e.innerIndex)
	if err != nil {
		return err
	}
	name := l.Attrs().Name // it may have been renamed
	e.mu.Lock()
	defer e.mu.Unlock()
	return ns.Do(func() error {
		all, err := ethtool.Features(name)
		if err != nil {
			return err
		}
		want := maps.Clone(e.base)
		if want == nil {
			want = map[string]bool{}
		}
		for f, now := range all {
			if c.mustBeOff(f) && (now.On || want[f]) && !now.Fixed {
				want[f] = false
			}
		}
		before, err := ethtool.SetFeatures(name, want)
		if e.base == nil {
			e.base = map[string]bool{}
		}
		for f, on := range before {
			if _, known := e.base[f]; !known {
				e.base[f] = on
			}
		}
		return err
	})
}
