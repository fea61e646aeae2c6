package bench_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/internal/netns"
)

// passXDP puts a program on an interface that lets all frames go on.
func passXDP(t *testing.T, ns, ifindex int) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, p)
	err = netns.Do(ns, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPDriverMode})
		if err == nil {
			closeAtEnd(t, l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Where the sink can't be an XDP program, or shouldn't, XDP frames are counted behind it, and the result says so.
func TestXDPFramesAreCountedAsBuffers(t *testing.T) {
	taken := bare(t)
	ns, ifindex := taken.Sink()
	passXDP(t, ns, ifindex)
	stacked := bare(t)
	if err := stacked.Stack(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tp   bench.Topology
		mode load.Mode
		want load.Mode
	}{
		"free":    {bare(t), load.Frame, load.Frame},
		"taken":   {taken, load.Frame, load.Skb},
		"stacked": {stacked, load.Frame, load.Skb},
		"skb":     {bare(t), load.Skb, load.Skb},
	} {
		t.Run(name, func(t *testing.T) {
			r := complete(t, newTrial(t, c.tp, load.Config{Mode: c.mode, Rate: 10_000}), 50*time.Millisecond, 500)
			if r.Counted != c.want || r.Delivered != 500 {
				t.Errorf("%d of %d counted in %s mode, want %s", r.Delivered, r.Offered, r.Counted, c.want)
			}
		})
	}
}
