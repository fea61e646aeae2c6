package xdp

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/sink"
)

// bare is the least that joins two devices: a program of five instructions and a device map.
func bare(w *world) (undo func(), err error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Flags: 1 << 5, Instructions: asm.Instructions{ // BPF_F_XDP_HAS_FRAGS
		asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0), asm.FnRedirectMap.Call(), asm.Return(),
	}})
	if err != nil {
		return nil, err
	}
	var l link.Link
	err = w.veth[1].OuterNS.Do(func() error { return m.Put(uint32(0), uint32(w.veth[1].OuterIndex)) })
	if err == nil {
		err = w.veth[0].OuterNS.Do(func() (err error) {
			l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: w.veth[0].OuterIndex, Flags: link.XDPDriverMode})
			return err
		})
	}
	return func() { l.Close(); p.Close(); m.Close() }, err
}

// passes makes the far inner side poll.
func passes(w *world) (undo func(), err error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Flags: 1 << 5, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		return nil, err
	}
	var l link.Link
	err = w.ns(1).Do(func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: w.veth[1].InnerIndex, Flags: link.XDPDriverMode})
		return err
	})
	return func() { l.Close(); p.Close() }, err
}

// deliver measures how many frames arrive behind end b in a second of this process's CPU time, which is that
// of one sender and, where it does all the work, of the pair. So other processes don't count much.
func (w *world) deliver(b *testing.B, mode load.Mode) float64 {
	const d = 200 * time.Millisecond
	g, err := load.New(load.Config{NetNS: w.ns(0).FD(), Ifindex: w.veth[0].InnerIndex, CPUs: w.cpus[:1], Flows: flows, Size: 60})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	s, err := sink.New(sink.Config{NetNS: w.ns(1).FD(), Ifindex: w.veth[1].InnerIndex, Mode: mode, Flows: flows})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Reset(g.NextRun()); err != nil {
		b.Fatal(err)
	}
	before := cpuTime(b)
	if _, err := g.Run(context.Background(), d); err != nil {
		b.Fatal(err)
	}
	spent := cpuTime(b) - before
	got, err := s.Read()
	if err != nil {
		b.Fatal(err)
	}
	return float64(got.Delivered) / spent.Seconds() / 1e6
}

func cpuTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkAgainstBareRedirect compares what a pair delivers with what the least possible program does, in
// turns: 60-byte frames, one CPU sending; Mpps are frames in a second of the sender's CPU time. In the first of two set-ups frames become skbs at the far end, as for any socket; in
// the second, an XDP program of the far end takes them, behind the pair's own if there is one, beside which forwarding is nearly all of the work.
func BenchmarkAgainstBareRedirect(b *testing.B) {
	for _, s := range []struct {
		name string
		mode load.Mode
	}{{"skb", load.Skb}, {"xdp", load.Frame}} {
		b.Run(s.name, func(b *testing.B) {
			var all [4][]float64
			w := newWorld(b, 1500, 2)
			for b.Loop() {
				for i := range all {
					all[i] = append(all[i], oneRound(b, w, s.mode, i))
				}
			}
			ratio := make([]float64, len(all[0]))
			for i := range ratio {
				ratio[i] = all[1][i] / all[0][i]
			}
			for i, name := range []string{"bare", "inline", "pool", "poller"} {
				b.ReportMetric(median(all[i]), name+"-Mpps")
			}
			b.ReportMetric(median(ratio), "inline/bare")
			b.ReportMetric(slices.Max(all[1])/slices.Max(all[0]), "best/best")
			b.Logf("bare %.2f inline %.2f pool %.2f poller %.2f inline/bare %.3f", all[0], all[1], all[2], all[3], ratio)
		})
	}
}

// oneRound measures the bare redirect (0) or a mode.
func oneRound(b *testing.B, w *world, mode load.Mode, i int) float64 {
	if i == 0 {
		undo, err := bare(w)
		if err != nil {
			b.Fatal(err)
		}
		defer undo()
		if mode == load.Skb {
			undo, err := passes(w)
			if err != nil {
				b.Fatal(err)
			}
			defer undo()
		}
		return w.deliver(b, mode)
	}
	x, err := New(w.config(modes[i-1]))
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	return w.deliver(b, mode)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
