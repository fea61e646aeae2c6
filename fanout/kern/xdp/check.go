package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// unfinished says whether, with that offload on, frames come unfinished to the far side of a veth: without
// checksum, or with their tag beside them. Segmentation the kernel turns off by itself, while XDP is there.
func unfinished(feature string) bool {
	return strings.HasPrefix(feature, "tx-checksum-") || feature == "tx-vlan-hw-insert" || feature == "tx-vlan-stag-hw-insert"
}

// finish is the command against it.
const finish = "ethtool -K %s tx off txvlan off tx-vlan-stag-hw-insert off"

// check refuses an end whose frames XDP can't carry as they are.
func check(c *kern.End) (notes []string, err error) {
	if c.Inner.Ifindex != 0 {
		err := netns.Do(c.Inner.NetNS, func() (err error) {
			notes, err = merges(c.Inner)
			return errors.Join(err, finished(c.Inner.Ifindex, ""))
		})
		return notes, err
	}
	err = netns.Do(c.Outer.NetNS, func() error {
		l, err := netlink.LinkByIndex(c.Outer.Ifindex)
		if err != nil {
			return fmt.Errorf("look up %s: %w", c.Outer.Name, err)
		}
		if l.Type() == "veth" {
			notes, err = checkPeer(l.Attrs())
			return err
		}
		return keepsTags(l.Attrs().Name)
	})
	return notes, err
}

// merges notes that an inner side has GRO on: it holds TCP segments back behind the out program.
func merges(d kern.Device) ([]string, error) {
	l, err := netlink.LinkByIndex(d.Ifindex)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", d.Name, err)
	}
	all, err := ethtool.Features(l.Attrs().Name)
	if err != nil || !all["rx-gro"].On {
		return nil, err
	}
	return []string{fmt.Sprintf("%s has GRO on, which merges TCP segments; their order while buckets move isn't proven (ethtool -K %s gro off)", d.Name, d.Name)}, nil
}

// finished refuses the sending side of a veth that leaves work to the other. It runs in its namespace, which
// where describes.
func finished(ifindex int, where string) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("look up interface %d%s: %w", ifindex, where, err)
	}
	name := l.Attrs().Name
	all, err := ethtool.Features(name)
	if err != nil {
		return err
	}
	for f, v := range all {
		if v.On && unfinished(f) {
			return fmt.Errorf("%w: %s%s sends unfinished frames, which XDP can't finish ("+finish+")", kern.ErrRefused, name, where, name)
		}
	}
	return nil
}

// keepsTags refuses a device that takes tags off the frames that it receives.
func keepsTags(name string) error {
	all, err := ethtool.Features(name)
	if err != nil {
		return err
	}
	for _, f := range []string{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"} {
		if all[f].On {
			return fmt.Errorf("%w: %s takes VLAN tags off frames, which XDP doesn't see then (ethtool -K %s %s off)", kern.ErrRefused, name, name, f)
		}
	}
	return nil
}

// checkPeer does what finished does for the peer of a veth that isn't ours. It runs in the
// namespace of the veth.
func checkPeer(a *netlink.LinkAttrs) (notes []string, err error) {
	if a.NetNsID < 0 {
		return nil, finished(a.ParentIndex, " (peer of "+a.Name+")")
	}
	path, err := findSpace(a.NetNsID)
	if err != nil {
		return nil, err
	}
	ns, err := openSpace(path)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		return []string{fmt.Sprintf("the namespace of %s's peer isn't found here: its frames must be finished (there: "+finish+")", a.Name, "PEER")}, nil
	}
	defer ns.Close()
	return nil, ns.Do(func() error { return finished(a.ParentIndex, " (peer of "+a.Name+", in "+path+")") })
}

func openSpace(path string) (*netns.NS, error) {
	if path == "" {
		return nil, nil
	}
	ns, err := netns.Open(path)
	if errors.Is(err, netns.ErrNotExist) {
		return nil, nil
	}
	return ns, err
}

// findSpace looks for the namespace that the calling thread's one knows by a number, among those that
// have a name or a process. It returns "" when it finds none.
func findSpace(nsid int) (string, error) {
	seen := map[netns.ID]bool{}
	for _, pattern := range []string{filepath.Join(netns.RunDir, "*"), "/proc/[0-9]*/ns/net"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			ns, err := netns.Open(path)
			if err != nil { // gone meanwhile, or no namespace
				continue
			}
			id, known := -1, seen[ns.ID()]
			seen[ns.ID()] = true
			if !known {
				id, err = netlink.GetNetNsIdByFd(ns.FD())
			}
			ns.Close()
			if err == nil && id == nsid {
				return path, nil
			}
		}
	}
	return "", nil
}

// rings is in how many rings frames to an inner side wait: the NAPI of each lets its frames out in order.
func rings(inner kern.Device) (n int, err error) {
	err = netns.Do(inner.NetNS, func() error {
		l, err := netlink.LinkByIndex(inner.Ifindex)
		if err == nil {
			n = l.Attrs().NumRxQueues
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", inner.Name, err)
	}
	return max(n, 1), nil
}

// hasBTF says whether the kernel describes its types, which the tracing programs need.
func hasBTF() error {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)", kern.ErrRefused)
	}
	return nil
}
