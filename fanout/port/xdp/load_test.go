package xdp

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/porttest"
)

// Load and sink of the benchmarks, both in the kernel:
//
//	load, one core ── live frames ──▶ ai ── ao ── forwarder ── bo ── bi ──▶ sink, a program that counts and drops

// pinned locks the goroutine to its thread, and that to one CPU. The thread ends with the goroutine.
func pinned(cpu int) error {
	runtime.LockOSThread()
	var s unix.CPUSet
	s.Set(cpu)
	return unix.SchedSetaffinity(0, &s)
}

// load sends one frame over and over, as fast as one core can.
type load struct {
	stop atomic.Bool
	done chan error
	sent atomic.Uint64
}

// startLoad sends frame into interface ifindex of ns from the given CPU.
func startLoad(t testing.TB, ns *porttest.NS, ifindex, cpu int, frame []byte) *load {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "load", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(ifindex)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{done: make(chan error, 1)}
	go func() {
		l.done <- ns.Do(func() error {
			defer prog.Close()
			if err := pinned(cpu); err != nil {
				return err
			}
			const perCall = 1 << 22 // a call takes 20 ms to start, in which nothing is sent
			for !l.stop.Load() {
				_, err := prog.Run(&ebpf.RunOptions{Data: frame, Repeat: perCall, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
				if err != nil {
					return err
				}
				l.sent.Add(perCall)
			}
			return nil
		})
	}()
	return l
}

func (l *load) end(t testing.TB) {
	t.Helper()
	l.stop.Store(true)
	if err := <-l.done; err != nil {
		t.Fatal(err)
	}
}

// sink counts the frames that come in by an interface, and drops them.
type sink struct {
	count *ebpf.Map
	prog  *ebpf.Program
	link  link.Link
}

// sinkProgram adds one to the only entry of a map and returns verdict.
func sinkProgram(count int, verdict int32) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, count),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
		asm.Return(),
	}
}

// newSink attaches a sink: an XDP program, or one at the tcx hook.
func newSink(t testing.TB, ns *porttest.NS, ifindex int, xdp bool) *sink {
	t.Helper()
	s := &sink{}
	var err error
	s.count, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sink", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	const xdpDrop, tcShot = 1, 2
	kind, verdict := ebpf.XDP, int32(xdpDrop)
	if !xdp {
		kind, verdict = ebpf.SchedCLS, tcShot
	}
	s.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sink", Type: kind, License: "GPL", Instructions: sinkProgram(s.count.FD(), verdict)})
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() (err error) {
		if xdp {
			s.link, err = link.AttachXDP(link.XDPOptions{Program: s.prog, Interface: ifindex, Flags: link.XDPDriverMode})
		} else {
			s.link, err = link.AttachTCX(link.TCXOptions{Program: s.prog, Interface: ifindex, Attach: ebpf.AttachTCXIngress})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.link.Close(); s.prog.Close(); s.count.Close() })
	return s
}

// frames returns how many came so far.
func (s *sink) frames(t testing.TB) uint64 {
	t.Helper()
	var perCPU []uint64
	if err := s.count.Lookup(uint32(0), &perCPU); err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for _, v := range perCPU {
		n += v
	}
	return n
}
