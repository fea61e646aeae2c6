package load_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

// newGen makes a load into one end of a veth of its own.
func newGen(t *testing.T, cfg load.Config) *load.Gen {
	t.Helper()
	tp, err := topo.Bare(1500)
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tp.Close() })
	cfg.NetNS, cfg.Ifindex = tp.Load()
	if cfg.CPUs == nil {
		if cfg.CPUs, err = cpus.Allowed(); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Flows, cfg.Size = 64, 60
	g, err := load.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// However fast it runs, a load ends when its context does, and so do its threads.
func TestStopIsPrompt(t *testing.T) {
	for _, mode := range []load.Mode{load.Frame, load.Skb} {
		for _, rate := range []float64{0, 10, 1e6} {
			g := newGen(t, load.Config{Mode: mode, Rate: rate})
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			_, err := g.Run(ctx, time.Hour)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("ended with %v", err)
			}
			deadline, _ := ctx.Deadline()
			if late := time.Since(deadline); late > 10*time.Second { // a call left to itself takes minutes
				t.Errorf("%s mode, rate %g: stopped %s after it was told", mode, rate, late)
			} else {
				t.Logf("%s mode, rate %g: stopped in %s", mode, rate, late.Round(time.Millisecond))
			}
		}
	}
}

func TestRunsDontPileUpThreads(t *testing.T) {
	g := newGen(t, load.Config{Rate: 1000})
	run := func(n int) int {
		for range n {
			if _, err := g.Run(t.Context(), time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		return threads(t)
	}
	before := run(2)
	if after := run(6); after > before+3 { // the runtime may start some of its own
		t.Errorf("%d threads after 2 runs, %d after 8", before, after)
	}
}

func TestRateCanChange(t *testing.T) {
	g := newGen(t, load.Config{Rate: 1000})
	for _, rate := range []float64{10_000, 20_000, 500} {
		if err := g.SetRate(rate); err != nil {
			t.Fatal(err)
		}
		r, err := g.Run(t.Context(), 100*time.Millisecond)
		if err != nil || r.Offered != uint64(rate/10) || r.Missing+r.Skipped != 0 {
			t.Errorf("%g a second: %+v, %v", rate, r, err)
		}
	}
	if err := g.SetRate(-1); err == nil {
		t.Error("a negative rate is set")
	}
}

// What is too late isn't sent where the load says so, and counted.
func TestBurstBoundsLateness(t *testing.T) {
	const burst = 50 * time.Microsecond
	g := newGen(t, load.Config{Rate: 50e6, Burst: burst})
	r, err := g.Run(t.Context(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Skipped == 0 || r.MaxLate > burst {
		t.Errorf("%d skipped, one %s late was sent", r.Skipped, r.MaxLate)
	}
	if all := r.Offered + r.Skipped + r.Missing; all != 2_500_000 {
		t.Errorf("%d frames are accounted for of 2500000", all)
	}
}

func TestClosedLoadDoesNotRun(t *testing.T) {
	g := newGen(t, load.Config{})
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(t.Context(), time.Second); !errors.Is(err, load.ErrClosed) {
		t.Errorf("ran: %v", err)
	}
}

func TestBadPlacesAreRefused(t *testing.T) {
	tp, err := topo.Bare(1500)
	if err != nil {
		t.Skip(err)
	}
	defer tp.Close()
	ns, ifindex := tp.Load()
	for name, cfg := range map[string]load.Config{
		"no such interface": {NetNS: ns, Ifindex: 99999, CPUs: []int{0}, Flows: 1, Size: 60},
		"none in skb mode":  {NetNS: ns, Ifindex: 99999, Mode: load.Skb, CPUs: []int{0}, Flows: 1, Size: 60},
		"no such namespace": {NetNS: -1, Ifindex: ifindex, CPUs: []int{0}, Flows: 1, Size: 60},
	} {
		if g, err := load.New(cfg); err == nil {
			g.Close()
			t.Errorf("%s: made", name)
		}
	}
	g, err := load.New(load.Config{NetNS: ns, Ifindex: ifindex, CPUs: []int{1023}, Flows: 1, Size: 60})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Run(t.Context(), time.Millisecond); err == nil {
		t.Error("ran on a cpu that isn't there")
	}
}

// Frames of the skb load have a hash, so that an interface with several queues needn't look into them for one: a
// program behind the load sees it before the interface does.
func TestSkbFramesHaveAHash(t *testing.T) {
	g := newGen(t, load.Config{Mode: load.Skb, Rate: 1000})
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 68, asm.Word), // hash of struct __sk_buff
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"), asm.StoreMem(asm.R0, 0, asm.R6, asm.Word),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cfg := g.Config()
	err = netns.Do(cfg.NetNS, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: cfg.Ifindex, Program: p, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return err
		}
		_, err = g.Run(t.Context(), 50*time.Millisecond)
		return errors.Join(err, l.Close())
	})
	var hash uint32
	if err := errors.Join(err, m.Lookup(uint32(0), &hash)); err != nil || hash == 0 {
		t.Errorf("hash %#x, %v", hash, err)
	}
}
