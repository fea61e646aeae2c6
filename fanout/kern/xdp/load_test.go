package xdp

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/sink"
	"github.com/epair-net/epair/fanout/kern"
)

const flows = 256

// rig sends frames of many flows into end a, from some CPUs, and counts them behind end b.
type rig struct {
	gen  *load.Gen
	sink *sink.Sink
}

func (w *world) rig(t testing.TB, cpus []int, rate float64, size int) *rig {
	t.Helper()
	g, err := load.New(load.Config{NetNS: w.ns(0).FD(), Ifindex: w.veth[0].InnerIndex, CPUs: cpus, Flows: flows, Size: size, Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	s, err := sink.New(sink.Config{NetNS: w.ns(1).FD(), Ifindex: w.veth[1].InnerIndex, Mode: load.Skb, Flows: flows})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &rig{g, s}
}

// run sends for d, while during is called again and again, every 20 ms.
func (r *rig) run(t testing.TB, d time.Duration, during func(i int)) (sent load.Result) {
	t.Helper()
	if err := r.sink.Reset(r.gen.NextRun()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				during(i)
			}
		}
	})
	sent, err := r.gen.Run(context.Background(), d)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// check compares what the sink saw with the ledger: all the frames, none of them out of order.
func (r *rig) check(t testing.TB, x *crossing, sent load.Result) kern.Ledger {
	t.Helper()
	ab, _ := balance(t, x)
	got, err := r.sink.Read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("offered %d, rx %d, tx %d, drops %v, lost %d, per cpu %v", sent.Offered, ab.Rx, ab.Tx, ab.Drops, got.Lost, ab.PerCPU)
	if got.Reordered != 0 || got.Duplicated != 0 {
		t.Errorf("%d frames out of order, %d twice", got.Reordered, got.Duplicated)
	}
	if got.Delivered+got.Stray != ab.Tx {
		t.Errorf("%d frames at the far end, and %d of others; %d in the ledger", got.Delivered, got.Stray, ab.Tx)
	}
	if ab.Rx > sent.Offered+got.Stray {
		t.Errorf("%d frames in the ledger, %d were sent", ab.Rx, sent.Offered)
	}
	return ab
}

// Frames keep their order while the table changes for all buckets, from some load to far too much.
func TestOrderWhileTableChanges(t *testing.T) {
	for _, rate := range []float64{200e3, 600e3, 0} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			w := newWorld(t, 1500, 2)
			x := w.cross(t, kern.Pool)
			n := len(w.cpus)
			r := w.rig(t, w.cpus[:1], rate, 60)
			sent := r.run(t, 700*time.Millisecond, func(i int) {
				if err := w.policy.SetTable(mustTable(t, fmt.Sprint(i%n), n), w.cpus); err != nil {
					t.Error(err)
				}
			})
			r.check(t, x, sent)
		})
	}
}

// Modes change under load, without a frame out of order, and what that costs is said.
func TestModesChangeUnderLoad(t *testing.T) {
	for _, queues := range []int{1, 2} {
		for _, rate := range []float64{150e3, 0} { // 0: as fast as it goes
			t.Run(fmt.Sprintf("%d queues %.0f", queues, rate), func(t *testing.T) {
				w := newWorld(t, 1500, queues)
				x := w.cross(t, kern.Inline)
				r := w.rig(t, w.cpus[:1], rate, 60)
				var blocked uint64
				turn := []kern.Mode{kern.Pool, kern.Inline, kern.Poller, kern.Pool, kern.Poller, kern.Inline}
				changes := 0 // as many as there is time for
				sent := r.run(t, time.Second, func(i int) {
					m := turn[i%len(turn)]
					c, err := x.SetMode(m)
					if err != nil {
						t.Errorf("to %s: %v", m, err)
					}
					blocked += c.Blocked
					changes++
					t.Logf("to %-7s %6d µs, %d blocked", m, c.Micros, c.Blocked)
				})
				ab := r.check(t, x, sent)
				if changes == 0 {
					t.Error("no change")
				}
				if ab.Drops["fence"] < blocked {
					t.Errorf("%d frames blocked, %d in the ledger", blocked, ab.Drops["fence"])
				}
			})
		}
	}
}

// Far more frames than can be handled, from every CPU, leave the workers to their work: what is too much is shed before
// it, frames of all workers alike get through, and every one is in the ledger.
func TestOverloadFromEveryCPU(t *testing.T) {
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Pool)
	r := w.rig(t, w.cpus, 0, 60)
	sent := r.run(t, time.Second, func(int) {})
	ab := r.check(t, x, sent)
	if ab.Tx < ab.Rx/10 {
		t.Errorf("of %d frames only %d got through: %v", ab.Rx, ab.Tx, ab.Drops)
	}
	for _, cpu := range w.cpus {
		if ab.PerCPU[cpu] < ab.Tx/uint64(10*len(w.cpus)) {
			t.Errorf("of %d frames, CPU %d let out %d", ab.Tx, cpu, ab.PerCPU[cpu])
		}
	}
}

// A pair that is closed under load leaves nothing in queues that the next one could take for its own.
func TestReplacedUnderLoad(t *testing.T) {
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Pool)
	r := w.rig(t, w.cpus, 0, 60)
	ports := x.ports
	r.run(t, time.Second, func(int) {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if n := waitingForWorkers(t, x.shared); n != 0 {
			t.Errorf("%d frames wait for workers behind Close", n)
		}
		x = mustNew(t, w.config(kern.Pool))
	})
	balance(t, x)
	if n, err := x.Moving(); n != 0 || err != nil {
		t.Errorf("%d buckets are moving (%v)", n, err)
	}
	if x.ports != ports {
		t.Errorf("ports %v became %v", ports, x.ports)
	}
	got, err := r.sink.Read()
	if err != nil {
		t.Fatal(err)
	}
	if got.Reordered != 0 || got.Duplicated != 0 || got.Delivered == 0 {
		t.Errorf("of %d frames, %d were out of order, %d came twice", got.Delivered, got.Reordered, got.Duplicated)
	}
}

// waitingForWorkers is how many frames of all pairs wait for a worker.
func waitingForWorkers(t *testing.T, s *shared) (n int) {
	t.Helper()
	var i uint32
	var q sharedEpairQueue
	for it := s.o.EpairLanes.Iterate(); it.Next(&i, &q); {
		n += int(q.In - q.Out)
	}
	return n
}
