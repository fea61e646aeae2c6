package skb

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// hook is a place where the crossing may have a program, by a tcx link: with the last descriptor
// the kernel detaches it. Programs of others stay, in their order.
type hook struct {
	where       *place
	at          ebpf.AttachType
	plain, pool string    // the program's name in modes inline and poller, and in mode pool; empty: none
	hold        string    // while modes inline and poller change; empty: as it was
	takesMark   bool      // the pool's program takes the mark off: it is there first and goes last
	link        link.Link // nil while there is no program
	pin         string    // the link's name in a BPF file system; empty: it ends with the process
}

// ingress is in front of others' programs, so that none sees the mark, and they count what
// a plain veth would deliver.
func ingress(d kern.Device, plain, pool string, takesMark bool) *hook {
	return &hook{where: placeOf(d), at: ebpf.AttachTCXIngress, plain: plain, pool: pool, takesMark: takesMark}
}

// egress is behind others' programs, who may change or drop the frame.
func egress(d kern.Device, pool, hold string) *hook {
	return &hook{where: placeOf(d), at: ebpf.AttachTCXEgress, pool: pool, hold: hold}
}

// put attaches the program, or exchanges it, so that each frame meets the one or the other, or detaches it, if p is
// nil. A device that is gone is fine.
func (h *hook) put(p *ebpf.Program) error {
	switch {
	case h.link == nil && p == nil:
		return nil
	case h.link == nil:
		return h.where.do(func(d kern.Device) error { return h.attach(d, p) })
	case p == nil:
		var err error
		if h.pin != "" {
			err = h.link.Unpin()
		}
		err = errors.Join(err, h.link.Close())
		h.link = nil
		return err
	}
	err := h.link.Update(p)
	if err != nil && !gone(err) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("exchange program at %s: %w", h.where.dev.Name, err)
	}
	return nil
}

func (h *hook) attach(d kern.Device, p *ebpf.Program) error {
	anchor := link.Head()
	if h.at == ebpf.AttachTCXEgress {
		anchor = link.Tail()
	}
	err := netns.Do(d.NetNS, func() (err error) {
		l, err := link.AttachTCX(link.TCXOptions{Interface: d.Ifindex, Program: p, Attach: h.at, Anchor: anchor})
		if err == nil {
			h.link = l
		}
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = fmt.Errorf("%w: this kernel has no tcx (needs Linux 6.6; use datapath user)", kern.ErrRefused)
	}
	if err == nil && h.pin != "" {
		err = h.link.Pin(h.pin)
	}
	if err != nil {
		return fmt.Errorf("attach program: %w", caps.Explain(err, caps.BPF, caps.NetAdmin, caps.SysAdmin))
	}
	return nil
}

// find takes over the link that another process left, if it is there and at this place.
func (h *hook) find() (bool, error) {
	l, err := link.LoadPinnedLink(h.pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open pinned link %s: %w", h.pin, kern.Explain(err))
	}
	h.link = l
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("read pinned link %s: %w", h.pin, err)
	}
	t := info.TCX()
	return t != nil && int(t.Ifindex) == h.where.dev.Ifindex && uint32(t.AttachType) == uint32(h.at), nil
}

// checkGRO refuses a device that may merge frames before their marks are taken off: each frame's counts.
func (h *hook) checkGRO() error {
	if !h.takesMark {
		return nil
	}
	return h.where.do(func(d kern.Device) error {
		var all map[string]ethtool.Feature
		if err := netns.Do(d.NetNS, func() (err error) { all, err = ethtool.Features(d.Name); return err }); err != nil {
			return err
		}
		if all["rx-gro"].On {
			return fmt.Errorf("%w: GRO is on and would merge frames before they are counted (ethtool -K %s gro off)", kern.ErrRefused, d.Name)
		}
		return nil
	})
}

// name is the program's in a mode.
func (h *hook) name(pool bool) string {
	if pool {
		return h.pool
	}
	return h.plain
}
