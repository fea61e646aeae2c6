package bench_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/fake"
	"github.com/epair-net/epair/bench/load"
)

// device is what a search looks at: it carries so many frames a second.
type device struct {
	capacity float64
	load     float64 // what the load can offer, 0: anything
	noise    float64 // probability that a trial loses a frame for no reason
	trials   int
}

func (d *device) try(_ context.Context, pps float64) (bench.TrialResult, error) {
	d.trials++
	r := bench.TrialResult{Offered: uint64(pps), Seconds: 1}
	if d.load > 0 && pps > d.load {
		r.Invalid = "load fell short"
		return r, nil
	}
	r.Lost = uint64(max(0, pps-d.capacity))
	if rand.Float64() < d.noise {
		r.Lost++
	}
	return r, nil
}

func TestSearchFindsTheRate(t *testing.T) {
	for _, c := range []struct {
		name  string
		d     device
		loss  float64
		want  float64
		limit bench.Limit
	}{
		{"no drop", device{capacity: 123_456}, bench.NDR, 123_456, bench.LimitLoss},
		{"partial drop", device{capacity: 100_000}, bench.PDR, 100_000 / (1 - bench.PDR), bench.LimitLoss},
		{"near the lowest", device{capacity: 1100}, bench.NDR, 1100, bench.LimitLoss},
		{"the lowest", device{capacity: 1000}, bench.NDR, 1000, bench.LimitLoss},
		{"too slow", device{capacity: 999}, bench.NDR, 0, bench.LimitLoss},
		{"faster than looked for", device{capacity: 2e6}, bench.NDR, 1e6, bench.LimitHigh},
		{"slow load", device{capacity: 500_000, load: 300_000}, bench.NDR, 300_000, bench.LimitLoad},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := bench.Search{Loss: c.loss, Low: 1000, High: 1e6}.Run(t.Context(), c.d.try)
			if err != nil {
				t.Fatal(err)
			}
			if r.PPS > c.want+1 || r.PPS < c.want*(1-bench.DefaultPrecision) || r.Limit != c.limit {
				t.Errorf("found %g, limited by %s; want %g, %s", r.PPS, r.Limit, c.want, c.limit)
			}
			if len(r.Trials) != c.d.trials || r.PPS > 0 && r.Best.Offered != uint64(r.PPS) {
				t.Errorf("%d trials of %d, best %+v", len(r.Trials), c.d.trials, r.Best)
			}
		})
	}
}

// One lost frame now and then doesn't keep a search from the rate.
func TestSearchSurvivesNoise(t *testing.T) {
	d := device{capacity: 100_000, noise: 0.2}
	r, err := bench.Search{Low: 1000, High: 1e6, Attempts: 20}.Run(t.Context(), d.try)
	if err != nil || r.PPS < 98_000 || r.PPS > 100_000 {
		t.Errorf("found %g, %v", r.PPS, err)
	}
}

func TestSearchSaysWhyThereIsNoRate(t *testing.T) {
	d := device{capacity: 1e6, load: 10}
	if _, err := (bench.Search{Low: 1000, High: 1e6}).Run(t.Context(), d.try); !errors.Is(err, bench.ErrNoRate) {
		t.Errorf("a load that can't: %v", err)
	}
	broken := errors.New("broken")
	fail := func(context.Context, float64) (bench.TrialResult, error) { return bench.TrialResult{}, broken }
	if _, err := (bench.Search{Low: 1000, High: 1e6}).Run(t.Context(), fail); !errors.Is(err, broken) {
		t.Errorf("a trial that fails: %v", err)
	}
	for _, s := range []bench.Search{{High: 10}, {Low: 10, High: 9}, {Low: math.NaN(), High: 1}} {
		if _, err := s.Run(t.Context(), d.try); err == nil {
			t.Errorf("%+v: searched", s)
		}
	}
}

// With real frames: a forwarder's capacity is found by loss.
func TestSearchFindsAForwardersCapacity(t *testing.T) {
	const capacity = 4000
	f := newFaulty(t, load.Skb, fake.Config{Capacity: capacity, Queue: 8})
	tr := newTrial(t, f, load.Config{Mode: load.Skb, Rate: 1})
	r, err := bench.Search{Loss: 0.02, Low: 500, High: 16_000, Precision: 0.2}.Run(t.Context(), tr.Pace(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	// Anything may be lost on a busy machine, but nothing comes that the forwarder can't carry: a queue's length and 2 % more.
	if limit := 1.02*capacity + 8/0.1 + 1; r.PPS > limit {
		t.Errorf("found %g frames a second, capacity %d", r.PPS, capacity)
	}
	for _, s := range r.Trials {
		if s.Passed != (s.Loss <= 0.02 && s.Invalid == "") {
			t.Errorf("trial at %g: passed %t with loss %g, invalid %q", s.PPS, s.Passed, s.Loss, s.Invalid)
		}
	}
	t.Logf("capacity %d, found %.0f in %d trials", capacity, r.PPS, len(r.Trials))
}
