package baseline

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
)

// redirectTo is what tc(8) calls mirred egress redirect, in four instructions.
func redirectTo(ifindex int) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: "tc_redirect", Type: ebpf.SchedCLS, License: "BSD",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(ifindex)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		},
	}
}

// tcRedirect sends each end's frames to the other, at tcx ingress.
func tcRedirect(_ context.Context, _ subject.Options, e ends) (subject.Made, error) {
	return crossed(e, func(from, to topo.End) (closers, error) {
		p, err := ebpf.NewProgram(redirectTo(to.Index))
		if err != nil {
			return nil, err
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: from.Index, Program: p, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		return closers{p, l}, nil
	})
}

// hasFrags is BPF_F_XDP_HAS_FRAGS: with it a veth takes an XDP program at any MTU.
const hasFrags = 1 << 5

// xdpRedirect sends each end's frames to the other by a map of devices, which the kernel does in batches.
func xdpRedirect(_ context.Context, o subject.Options, e ends) (subject.Made, error) {
	if err := errors.Join(e.napi(), e.plain(o)); err != nil {
		return subject.Made{}, err
	}
	return crossed(e, func(from, to topo.End) (c closers, err error) {
		defer func() {
			if err != nil {
				err = errors.Join(err, c.Close())
			}
		}()
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "devices", Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			return c, err
		}
		c = append(c, m)
		if err := m.Put(uint32(0), uint32(to.Index)); err != nil {
			return c, err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "xdp_redirect", Type: ebpf.XDP, License: "BSD", Flags: hasFrags,
			Instructions: asm.Instructions{
				asm.LoadMapPtr(asm.R1, m.FD()),
				asm.Mov.Imm(asm.R2, 0),
				asm.Mov.Imm(asm.R3, 0),
				asm.FnRedirectMap.Call(),
				asm.Return(),
			},
		})
		if err != nil {
			return c, err
		}
		c = append(c, p)
		l, err := link.AttachXDP(link.XDPOptions{Interface: from.Index, Program: p, Flags: link.XDPDriverMode})
		if err != nil {
			return c, err
		}
		return append(c, l), nil
	})
}

// crossed attaches one direction after the other, inside the namespace of both.
func crossed(e ends, attach func(from, to topo.End) (closers, error)) (m subject.Made, err error) {
	var all closers
	err = e.mid().Do(func() error {
		for _, d := range [][2]topo.End{{e.in, e.out}, {e.out, e.in}} {
			c, err := attach(d[0], d[1])
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		return m, errors.Join(fmt.Errorf("attach redirect: %w", err), all.Close())
	}
	m.Closer = all
	return m, nil
}
