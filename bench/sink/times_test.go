package sink

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/wire"
)

func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return uint64(ts.Nano())
}

// A latency lies between what it was before and after the call, within half a bucket.
func TestLatencies(t *testing.T) {
	const half = 0.005
	rigs(t, func(r *rig) {
		for v := uint64(1); v < 1<<37; v = v*5/2 + 1 {
			late := uint32(min(v/3, 1<<32-1))
			if err := r.s.Reset(testRun); err != nil {
				t.Fatal(err)
			}
			before := monotonic()
			r.give(r.frame(wire.Stamp{Run: testRun, Due: before - v, Late: late}))
			most := float64(v + monotonic() - before)
			got := r.read()
			if l := float64(got.Latency.Max()); l < float64(v)*(1-half) || l > most*(1+half)+1 {
				t.Errorf("latency of %d to %.0f ns: %.0f", v, most, l)
			}
			if l := float64(got.Network.Max()); l < float64(v-uint64(late))*(1-half) || l > (most-float64(late))*(1+half)+1 {
				t.Errorf("network's part of %d - %d to %.0f ns: %.0f", v, late, most, l)
			}
			if got.Latency.TotalCount() != 1 || got.Network.TotalCount() != 1 {
				t.Errorf("%d and %d latencies of one frame", got.Latency.TotalCount(), got.Network.TotalCount())
			}
		}
	})
}

// Every bucket's middle is its own: buckets are in order, none is missed.
func TestMiddlesRise(t *testing.T) {
	for i := 1; i < buckets; i++ {
		a, b := middle(i-1), middle(i)
		if b <= a || float64(b-a) > max(1, float64(b)/100) {
			t.Fatalf("bucket %d has %d, the one before %d", i, b, a)
		}
	}
	if last := middle(buckets - 1); last > NewHistogram().HighestTrackableValue() {
		t.Errorf("last bucket's %d doesn't fit the histogram", last)
	}
}

func TestGapAndTimeline(t *testing.T) {
	rigs(t, func(r *rig) {
		r.seq(0, 0)
		first := monotonic()
		for monotonic() < first+3*uint64(SlotTime) {
			time.Sleep(time.Millisecond)
		}
		begin := monotonic()
		r.seq(0, 1)
		r.seq(0, 2)
		got := r.read()
		if got.LongestGap < time.Duration(begin-first) || got.LongestGap > got.Last-got.First {
			t.Errorf("gap %s, waited %s, %s from first to last", got.LongestGap, time.Duration(begin-first), got.Last-got.First)
		}
		sum := uint64(0)
		for _, n := range got.Timeline {
			sum += n
		}
		if len(got.Timeline) < 4 || got.Timeline[0] != 1 || got.Timeline[1] != 0 || sum != 3 {
			t.Errorf("timeline %v", got.Timeline)
		}
	})
}
