package bench_test

import (
	"math"
	"testing"
	"time"

	"github.com/epair-net/epair/bench/fake"
	"github.com/epair-net/epair/bench/load"
)

// What a forwarder with known faults did is what the trial says, to the frame.
func TestFaultsAreCountedExactly(t *testing.T) {
	modes(t, func(t *testing.T, mode load.Mode) {
		for _, c := range []struct {
			name string
			cfg  fake.Config
		}{
			{"none", fake.Config{}},
			{"loss", fake.Config{DropEvery: 10}},
			{"duplication", fake.Config{RepeatEvery: 7}},
			{"reorder", fake.Config{SwapEvery: 9}},
			{"all", fake.Config{DropEvery: 50, RepeatEvery: 7, SwapEvery: 9}},
		} {
			t.Run(c.name, func(t *testing.T) { exact(t, mode, c.cfg) })
		}
	})
}

// patient is how long a forwarder of this process may stand still by itself, on a busy machine.
const patient = 400 * time.Millisecond

// exact tries until the machine itself loses nothing: what its queues drop can't be planned.
func exact(t *testing.T, mode load.Mode, cfg fake.Config) {
	for range attempts {
		f := newFaulty(t, mode, cfg)
		tr := newTrial(t, f, load.Config{Mode: mode, Rate: 20_000})
		tr.Quiet = patient
		r := run(t, tr, 200*time.Millisecond)
		l, noise := f.ledgerNow(t), f.kernelLoss(t)
		if l.Taken != l.Dropped+l.Overflow+l.Sent-l.Repeated {
			continue // it still holds some: it stood still for longer than was waited for
		}
		if lost := l.Dropped + l.Overflow + l.Missed + noise; r.Lost != lost {
			t.Fatalf("lost %d, forwarder and veths lost %d (%+v)", r.Lost, lost, l)
		}
		if noise+l.Missed+l.Overflow != 0 || r.Offered != 4000 {
			continue
		}
		planned := uint64(0)
		if cfg.DropEvery > 0 {
			planned = r.Offered / uint64(cfg.DropEvery)
		}
		if r.Lost != planned || r.Duplicated != l.Repeated || r.Reordered != l.Swapped || r.Delivered != r.Offered-planned {
			t.Errorf("got %+v, forwarder says %+v, %d losses planned", r, l, planned)
		}
		if cfg.SwapEvery > 0 && r.Reordered == 0 || cfg.RepeatEvery > 0 && r.Duplicated == 0 {
			t.Errorf("no fault in %+v", l)
		}
		return
	}
	t.Fatalf("the machine lost frames in %d attempts", attempts)
}

// A forwarder that can't follow shows its own rate, also while its queue empties.
func TestCapacityIsTheRate(t *testing.T) {
	modes(t, func(t *testing.T, mode load.Mode) {
		for _, queue := range []int{64, 1 << 15} {
			capacity(t, mode, queue)
		}
	})
}

func capacity(t *testing.T, mode load.Mode, queue int) {
	for range attempts {
		f := newFaulty(t, mode, fake.Config{Capacity: 8000, Queue: queue})
		tr := newTrial(t, f, load.Config{Mode: mode, Rate: 16_000})
		tr.Quiet = patient
		r := run(t, tr, 400*time.Millisecond)
		l, noise := f.ledgerNow(t), f.kernelLoss(t)
		if r.Delivered != l.Sent || noise+l.Missed != 0 {
			continue // it stood still for longer than was waited for, or the machine lost frames
		}
		own := float64(l.Sent) / l.Last.Sub(l.First).Seconds()
		if math.Abs(r.PPS-own) > 0.01*own {
			continue // it was interrupted between a frame and its clock; a wrong meter is wrong each time
		}
		if deep := queue > 1<<14; r.Invalid == "" && deep != (r.Lost == 0) {
			t.Errorf("queue of %d lost %d", queue, r.Lost)
		}
		t.Logf("capacity 8000, forwarder %.0f, measured %.0f frames a second", own, r.PPS)
		return
	}
	t.Fatalf("measured rate and the forwarder's own differed by 1 %%, or the machine was too busy, in %d attempts", attempts)
}

func TestDelayIsTheLatency(t *testing.T) {
	const delay = 20 * time.Millisecond
	modes(t, func(t *testing.T, mode load.Mode) {
		f := newFaulty(t, mode, fake.Config{Delay: delay})
		r := run(t, newTrial(t, f, load.Config{Mode: mode, Rate: 20_000}), 150*time.Millisecond)
		// The fastest frame: the others depend on what else the machine does.
		within(t, "least latency", float64(r.Latency.Min()), float64(delay), 0.01)
		if p50 := time.Duration(r.Latency.ValueAtQuantile(50)); p50 < delay*99/100 {
			t.Errorf("median latency %s, delayed by %s", p50, delay)
		}
	})
}

// A forwarder that stands still for a tenth of the run holds back a tenth of the frames, and they all know it.
func TestStopShowsInLatency(t *testing.T) {
	const d, stop = time.Second, 100 * time.Millisecond
	modes(t, func(t *testing.T, mode load.Mode) {
		f := newFaulty(t, mode, fake.Config{})
		tr := newTrial(t, f, load.Config{Mode: mode, Rate: 10_000})
		go func() {
			for l, err := f.Ledger(); err == nil && l.Taken < 3000; l, err = f.Ledger() {
				time.Sleep(time.Millisecond)
			}
			f.Stop(stop)
		}()
		r := run(t, tr, d)
		if p99 := time.Duration(r.Latency.ValueAtQuantile(99)); p99 < stop*8/10 {
			t.Errorf("p99 %s after a stop of %s", p99, stop)
		}
		if r.LongestGap < stop*8/10 {
			t.Errorf("longest gap %s, stopped for %s", r.LongestGap, stop)
		}
	})
}
