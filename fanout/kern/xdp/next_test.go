package xdp

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/sink"
	"github.com/epair-net/epair/fanout/kern"
)

// next is the slot of an end, by the program's own view of it.
func next(x *crossing, end int) *ebpf.Map { return x.coll.Maps["epair_next_"+side(end)] }

// What is behind the out program gets each frame that has come out, in every mode, with nothing of ours in it; when it
// is gone, frames pass.
func TestNextProgram(t *testing.T) {
	const sent = 100 * time.Millisecond
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Inline)
	for _, m := range modes {
		if _, err := x.SetMode(m); err != nil {
			t.Fatal(err)
		}
		g, err := load.New(load.Config{NetNS: w.ns(0).FD(), Ifindex: w.veth[0].InnerIndex, CPUs: w.cpus[:1], Flows: flows, Size: 60, Rate: 20000})
		if err != nil {
			t.Fatal(err)
		}
		s, err := sink.New(sink.Config{NetNS: w.ns(1).FD(), Ifindex: w.veth[1].InnerIndex, Mode: load.Frame, Flows: flows})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Reset(g.NextRun()); err != nil {
			t.Fatal(err)
		}
		before, _ := balance(t, x)
		r, err := g.Run(context.Background(), sent)
		if err != nil {
			t.Fatal(err)
		}
		after, _ := balance(t, x)
		got, err := s.Read()
		if err != nil {
			t.Fatal(err)
		}
		if out := after.Tx - before.Tx; r.Offered == 0 || got.Delivered+total(after.Drops)-total(before.Drops) != r.Offered || got.Delivered != out || got.Stray != 0 {
			t.Errorf("%v: %d sent, %d out, behind it %+v", m, r.Offered, out, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.ping(t, 0, 100)
	w.ping(t, 1, 100)
}

// Each end has its own slot, which takes only what may run where the out program does.
func TestNextSlots(t *testing.T) {
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Inline)
	verdict := func(code int32, flags uint32) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL", Flags: flags, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, code), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	w.ping(t, 0, 100) // both know each other's address then
	w.ping(t, 1, 100)
	const frags = 1 << 5 // BPF_F_XDP_HAS_FRAGS
	if err := next(x, 0).Put(uint32(0), verdict(2, 0)); err == nil {
		t.Error("a program without frags was taken")
	}
	if err := next(x, 0).Put(uint32(0), verdict(1, frags)); err != nil { // XDP_DROP
		t.Fatal(err)
	}
	w.ping(t, 0, 100, 200) // it's end a that drops
	if err := next(x, 0).Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	w.ping(t, 1, 100, 200)
}

// The ledger has the bytes of a frame in several pieces, too.
func TestBytesOfFragments(t *testing.T) {
	w := newWorld(t, 9000, 2)
	x := w.cross(t, kern.Inline)
	w.ping(t, 0, 100) // both know each other's address then
	before, _ := balance(t, x)
	w.ping(t, 0, 100, 3000, 8000)
	after, _ := balance(t, x)
	const want = 3*(14+20+8) + 100 + 3000 + 8000
	if rx, tx := after.RxBytes-before.RxBytes, after.TxBytes-before.TxBytes; rx != want || tx != want {
		t.Errorf("%d bytes in, %d out, want %d", rx, tx, want)
	}
}
