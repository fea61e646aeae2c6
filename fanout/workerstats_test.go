package fanout

import (
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port/memport"
)

// What a worker counted and timed is what was done.
func TestWorkerStats(t *testing.T) {
	t.Parallel() // after all that count threads
	rig := newRig(t, Fanned, 2, memport.Config{Slots: 512})
	ways := rig.ways(60)
	stops := []func() error{traffic(ways[0]), traffic(ways[1])}
	var all []WorkerStats
	waitFor(t, "both workers have seen a queue and its waiting", func() bool {
		var err error
		if all, err = rig.pool.WorkerStats(); err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.QueueMax == 0 || s.SojournP50 == 0 || s.Run == 0 || s.Slices == 0 {
				return false
			}
		}
		return true
	})
	for _, s := range all {
		if s.QueueMin > s.QueueMax || s.QueueMean > float64(s.QueueMax) || s.QueueMax > ringSize ||
			s.SojournP50 > s.SojournP99 || s.SojournP99 > s.SojournMax || s.SojournMax > time.Minute || s.Delay == 0 {
			t.Errorf("%+v", s)
		}
	}
	for i, stop := range stops {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		ways[i].check(t)
	}
	var want uint64
	for _, l := range rig.pair.lanes() {
		led := l.ledger()
		for i := range led.Workers {
			want += led.Workers[i].Rx + led.Workers[i].Taken
		}
	}
	var frames, least, wakes uint64
	waitFor(t, "the workers show all they have counted", func() bool {
		all, err := rig.pool.WorkerStats()
		if err != nil {
			t.Fatal(err)
		}
		frames, least, wakes = 0, 0, 0
		for _, s := range all {
			frames, wakes = frames+s.Frames, wakes+s.Wakes
			for i, n := range s.Batches {
				least += n << i
			}
		}
		return frames == want
	})
	if least > frames || least <= frames/2 || wakes > frames {
		t.Errorf("%d frames, batches of at least %d in all, %d wakes", frames, least, wakes)
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 || h.quantile(1) != 0 {
		t.Error("an empty histogram has quantiles")
	}
	for i := range 1000 {
		h.record(time.Duration(i+1) * time.Microsecond)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, time.Microsecond}, {0.5, 500 * time.Microsecond}, {0.99, 990 * time.Microsecond}, {1, time.Millisecond}} {
		if got := h.quantile(c.q); got < c.want || got > c.want*5/4 {
			t.Errorf("quantile %v is %v, want %v or a quarter more", c.q, got, c.want)
		}
	}
	var sum histogram
	sum.record(9 * time.Minute)
	sum.add(&h)
	if sum.count != 1001 || sum.max != 9*time.Minute || sum.quantile(1) != 9*time.Minute {
		t.Errorf("sum of %d, max %v, last %v", sum.count, sum.max, sum.quantile(1))
	}
	for d := time.Duration(0); d < 1<<42; d = d*9/8 + 1 {
		if i := step(d); ceiling(i) < d && i < 159 || i > 0 && ceiling(i-1) >= d {
			t.Errorf("%v is counted in step %d, from %v to %v", d, i, ceiling(i-1), ceiling(i))
		}
	}
}
