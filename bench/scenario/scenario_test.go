package scenario_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/fake"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/scenario"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

// trial is one over a fake forwarder, in skb mode.
func trial(t *testing.T, faults fake.Config, cfg load.Config) (*bench.Trial, *fake.Forwarder) {
	t.Helper()
	var f *fake.Forwarder
	tp, err := topo.Split(false, 1500, func(in, out topo.End) (_ io.Closer, err error) {
		faults.NetNS, faults.In, faults.Out = in.NS.FD(), in.Index, out.Index
		f, err = fake.New(faults)
		return f, err
	})
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tp.Close() })
	all, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Mode, cfg.CPUs, cfg.Flows, cfg.Size = load.Skb, all[:1], 16, 60
	tr, err := bench.NewTrial(tp, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	tr.Quiet = 400 * time.Millisecond
	return tr, f
}

func TestThroughputIsTheMaximum(t *testing.T) {
	tr, _ := trial(t, fake.Config{Capacity: 5000, Queue: 64}, load.Config{Rate: 1})
	r, err := scenario.Throughput(t.Context(), tr, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.IntendedPPS != 0 || r.Offered <= r.Delivered || r.Delivered == 0 || r.PPS > 5000*1.02+64/0.2 {
		t.Errorf("%d of %d, %.0f a second, of at most 5000", r.Delivered, r.Offered, r.PPS)
	}
}

func TestLatencyAtParts(t *testing.T) {
	const delay = 5 * time.Millisecond
	tr, _ := trial(t, fake.Config{Delay: delay}, load.Config{Rate: 1})
	rows, err := scenario.Latency(t.Context(), tr, 10_000, []float64{0.1, 0.5}, 200*time.Millisecond)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range []float64{1000, 5000} {
		r := rows[i]
		d := r.Delays
		if r.PPS != want || r.Trial.IntendedPPS != want {
			t.Errorf("row %d: %g frames a second, intended %g", i, r.PPS, r.Trial.IntendedPPS)
		}
		order := []time.Duration{delay * 99 / 100, d.Min, d.P50, d.P90, d.P99, d.P999, d.Max}
		if !slices.IsSorted(order) || d.Avg < d.Min || d.Avg > d.Max || d.Variation != d.P999-d.Min {
			t.Errorf("row %d: %+v", i, d)
		}
	}
	bursty, _ := trial(t, fake.Config{}, load.Config{Rate: 1, Burst: time.Millisecond})
	if _, err := scenario.Latency(t.Context(), bursty, 1000, []float64{1}, time.Millisecond); err == nil {
		t.Error("measured with a load that skips what is late")
	}
}

// Each change stops the forwarder, whose queue is too short for it: what it lost is the time it was blocked.
func TestSwitchCountsBlockedTime(t *testing.T) {
	const stop, rate, queue = 60 * time.Millisecond, 10_000, 50
	tr, f := trial(t, fake.Config{Queue: queue}, load.Config{Rate: 1})
	s := scenario.Switch{Rate: rate, Every: 200 * time.Millisecond, Change: func(context.Context, int) error {
		f.Stop(stop)
		return nil
	}}
	r, err := s.Run(t.Context(), tr, 700*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Changes) == 0 || len(r.Changes) > 3 || r.Changes[0].At < s.Every {
		t.Fatalf("changes %+v", r.Changes)
	}
	if r.Trial.LongestGap < stop*8/10 {
		t.Errorf("longest gap %s, stopped for %s", r.Trial.LongestGap, stop)
	}
	if want := time.Duration(float64(r.Trial.Lost) / r.Trial.OfferedPPS * 1e9); r.Blocked != want {
		t.Errorf("blocked for %s, lost %d of %.0f a second", r.Blocked, r.Trial.Lost, r.Trial.OfferedPPS)
	}
	if r.Trial.Invalid == "" && r.Blocked < stop/2 {
		t.Errorf("blocked for %s in all, stopped %d times for %s", r.Blocked, len(r.Changes), stop)
	}
}

func TestSwitchEndsWithAFailedChange(t *testing.T) {
	tr, _ := trial(t, fake.Config{}, load.Config{Rate: 1})
	broken := errors.New("broken")
	s := scenario.Switch{Rate: 1000, Every: 10 * time.Millisecond, Change: func(_ context.Context, i int) error {
		if i == 2 {
			return broken
		}
		return nil
	}}
	r, err := s.Run(t.Context(), tr, time.Hour)
	if !errors.Is(err, broken) || len(r.Changes) != 2 {
		t.Errorf("%d changes, %v", len(r.Changes), err)
	}
	s.Every = time.Hour // none: the run isn't longer for it
	if r, err := s.Run(t.Context(), tr, 50*time.Millisecond); err != nil || len(r.Changes) != 0 || r.Trial.Offered == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := (scenario.Switch{}).Run(t.Context(), tr, time.Second); err == nil {
		t.Error("ran without a rate")
	}
}

func TestRatesAreOrdered(t *testing.T) {
	tr, _ := trial(t, fake.Config{Capacity: 6000, Queue: 32}, load.Config{Rate: 1, Burst: time.Millisecond})
	tr.Quiet = 50 * time.Millisecond
	ndr, pdr, err := scenario.Rates(t.Context(), tr, 8000, 100*time.Millisecond)
	if errors.Is(err, bench.ErrNoRate) {
		t.Skip(err) // the machine is too busy for any pace
	}
	if err != nil {
		t.Fatal(err)
	}
	if ndr.PPS > pdr.PPS || pdr.PPS > 6000*1.02+32/0.1 {
		t.Errorf("without loss %.0f, with little %.0f, capacity 6000", ndr.PPS, pdr.PPS)
	}
}

// veths is a fleet of plain ones in a namespace.
type veths struct {
	ns    *netns.NS
	n     int
	limit int // that Add refuses
}

var errFull = errors.New("full")

func (v *veths) Add(_ context.Context, i int) error {
	if i == v.limit {
		return errFull
	}
	v.n++
	return v.ns.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "v" + string(rune('a'+i))
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "p" + attrs.Name})
	})
}

func (v *veths) RemoveAll(context.Context) error {
	v.n = 0
	return v.ns.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Attrs().Name[0] == 'v' {
				err = errors.Join(err, netlink.LinkDel(l))
			}
		}
		return err
	})
}

func TestPairsAreMadeUsedAndRemoved(t *testing.T) {
	ns, err := topo.Space()
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	v := &veths{ns: ns, limit: -1}
	used := 0
	r, err := scenario.Pairs(t.Context(), v, 5, os.Getpid(), func(context.Context) error { used = v.n; return nil })
	if err != nil || r.N != 5 || used != 5 || v.n != 0 || r.CreateRate() <= 0 || r.RemoveRate() <= 0 {
		t.Errorf("%+v, %d used, %d left, %v", r, used, v.n, err)
	}
	v.limit = 3
	if r, err := scenario.Pairs(t.Context(), v, 5, os.Getpid(), nil); !errors.Is(err, errFull) || r.N != 3 || v.n != 0 {
		t.Errorf("a fleet that fails: %+v, %d left, %v", r, v.n, err)
	}
	if _, err := scenario.Pairs(t.Context(), v, 1, -1, nil); err == nil {
		t.Error("served by no process")
	}
}
