// Package gate stops the frames of a pair for a moment, while what carries them is exchanged.
//
//	sockets ── inner end: gate ── outer side ── carrier
//
// It is in front of all other programs at the egress of both inner ends, so that none of them sees a frame that is
// stopped. What passes no egress hook isn't: frames that XDP sends, and those of packet sockets that
// bypass the queueing discipline (PACKET_QDISC_BYPASS, packet(7)).
package gate

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// Count is what was dropped of one direction.
type Count struct{ Frames, Bytes uint64 }

// Gate is the gate of one pair, open at first.
//
// Concurrency contract: one goroutine calls New, Shut, Open, Detach and Close, one after the other;
// Dropped may be called from any between New and Close.
type Gate struct {
	shut  *ebpf.Map
	count [2]*ebpf.Map // by direction: 0 from a to b
	links [2]link.Link
}

// New makes the gate of two inner ends, whose namespaces it borrows. It needs CAP_BPF and CAP_NET_ADMIN. If this process
// dies the kernel takes it away.
func New(inner [2]kern.Device) (*Gate, error) {
	g := &Gate{}
	err := g.make(inner)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make gate: %w", err), g.Close())
	}
	return g, nil
}

func (g *Gate) make(inner [2]kern.Device) (err error) {
	if g.shut, err = ebpf.NewMap(&ebpf.MapSpec{Name: "epair_shut", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil {
		return kern.Explain(err)
	}
	for i, d := range inner {
		if g.count[i], err = ebpf.NewMap(&ebpf.MapSpec{Name: "epair_stopped", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1}); err != nil {
			return kern.Explain(err)
		}
		if err := g.attach(i, d); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gate) attach(i int, d kern.Device) error {
	p, err := ebpf.NewProgram(program(g.shut, g.count[i]))
	if err != nil {
		return kern.Explain(err)
	}
	defer p.Close() // the link keeps it
	err = netns.Do(d.NetNS, func() (err error) {
		g.links[i], err = link.AttachTCX(link.TCXOptions{Interface: d.Ifindex, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = fmt.Errorf("%w: this kernel has no tcx (needs Linux 6.6; delete the pair and add it anew)", kern.ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("attach program to %s: %w", d.Name, caps.Explain(err, caps.BPF, caps.NetAdmin, caps.SysAdmin))
	}
	return nil
}

// Shut lets no more frames in. Some CPUs may still be busy with one that was let in before: for those wait by
// skb.Settle.
func (g *Gate) Shut() error { return g.set(1) }

// Open lets frames in again.
func (g *Gate) Open() error { return g.set(0) }

func (g *Gate) set(v uint32) error {
	if err := g.shut.Put(uint32(0), v); err != nil {
		return fmt.Errorf("set gate: %w", err)
	}
	return nil
}

// Detach takes the gate away. When it returns no program of it runs, and Dropped is final.
func (g *Gate) Detach() error {
	var errs []error
	for i, l := range g.links {
		if l == nil {
			continue
		}
		// Who looks at all links of the machine at this moment would hold this one.
		errs = append(errs, l.Detach(), l.Close())
		g.links[i] = nil
	}
	return errors.Join(errs...)
}

// Dropped returns what was stopped, by direction.
func (g *Gate) Dropped() (sum [2]Count, err error) {
	for i, m := range g.count {
		var all []Count
		if err := m.Lookup(uint32(0), &all); err != nil {
			return sum, fmt.Errorf("read gate: %w", err)
		}
		for _, c := range all {
			sum[i].Frames += c.Frames
			sum[i].Bytes += c.Bytes
		}
	}
	return sum, nil
}

// Close gives everything up. It is idempotent.
func (g *Gate) Close() error {
	return errors.Join(g.Detach(), g.shut.Close(), g.count[0].Close(), g.count[1].Close()) // nil maps close well
}
