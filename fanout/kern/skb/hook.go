package skb

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// hook is a place where the crossing always has a program, by a tcx link: with the last descriptor
// the kernel detaches it. Programs of others stay, in their order.
type hook struct {
	dev         kern.Device
	at          ebpf.AttachType
	plain, pool string // the program's name in modes inline and poller, and in mode pool
	hold        string // and while these two change; empty if it stays
	takesMark   bool   // the pool's program takes the mark off: it is there first and goes last
	link        link.Link
}

// ingress is in front of others' programs, so that none sees the mark, and they count what
// a plain veth would deliver.
func ingress(d kern.Device, plain, pool string, takesMark bool) *hook {
	return &hook{dev: d, at: ebpf.AttachTCXIngress, plain: plain, pool: pool, takesMark: takesMark}
}

// egress is behind others' programs, who may change or drop the frame.
func egress(d kern.Device, plain, pool, hold string) *hook {
	return &hook{dev: d, at: ebpf.AttachTCXEgress, plain: plain, pool: pool, hold: hold}
}

func (h *hook) attach(p *ebpf.Program) error {
	anchor := link.Head()
	if h.at == ebpf.AttachTCXEgress {
		anchor = link.Tail()
	}
	err := netns.Do(h.dev.NetNS, func() (err error) {
		h.link, err = link.AttachTCX(link.TCXOptions{Interface: h.dev.Ifindex, Program: p, Attach: h.at, Anchor: anchor})
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = fmt.Errorf("%w: this kernel has no tcx (Linux 6.6; use datapath user)", kern.ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", h.dev.Name, caps.Explain(err, caps.BPF, caps.NetAdmin, caps.SysAdmin))
	}
	return nil
}

// swap exchanges the program: each frame meets the one or the other. A device that is gone is fine.
func (h *hook) swap(p *ebpf.Program) error {
	err := h.link.Update(p)
	if err != nil && !gone(err) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("exchange program at %s: %w", h.dev.Name, err)
	}
	return nil
}

func (h *hook) close() error {
	if h.link == nil {
		return nil
	}
	return h.link.Close()
}
