package fanout

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"time"
)

// BatchSizes is the number of classes that batches are counted in: 1, 2–3, 4–7, … 64 frames.
const BatchSizes = 7

// WorkerStats is how a worker spends its time, in full. Counters only grow. What is of the last second is 0 while
// nothing was handed over.
type WorkerStats struct {
	WorkerInfo
	Frames  uint64             // received by it or handed over to it
	Batches [BatchSizes]uint64 // by size: class i has 2^i frames and more

	// Frames handed over to this worker that wait for it, as it finds them, in the last second.
	QueueMin, QueueMax int
	QueueMean          float64
	// How long such frames wait until they are sent, in the last second: one batch of eight is timed.
	SojournP50, SojournP99, SojournMax time.Duration

	// Of the thread, from /proc/self/task/TID/schedstat.
	Run    time.Duration // on a CPU
	Delay  time.Duration // ready to run, without a CPU
	Slices uint64        // times it got a CPU
}

// WakesPerFrame is how many times a frame it took made the worker wake another one.
func (s *WorkerStats) WakesPerFrame() float64 {
	return float64(s.Wakes) / float64(max(s.Frames, 1))
}

const (
	// observeEvery is how many turns pass between two looks at the worker itself: its queues' words, which
	// others write, and the clock.
	observeEvery = 16
	// stampEvery is of how many batches that are handed over one is timed.
	stampEvery = 8
	// window is what min, max and quantiles are taken over.
	window = time.Second
)

// tally is what the worker counts; it is its own.
type tally struct {
	turns, empty, frames uint64
	batches              [BatchSizes]uint64

	began   time.Time // of the window
	samples int
	queued  struct{ min, max, sum int }
	sojourn histogram
}

// shown is what others see of a tally. It is written once in observeEvery turns.
type shown struct {
	mu       sync.Mutex // guards all
	counters tally      // without its window
	last     tally      // the window before
}

// count counts n frames that were received or taken over together.
func (t *tally) count(n int) {
	t.frames += uint64(n)
	t.batches[min(bits.Len(uint(n)), BatchSizes)-1]++
}

// turned counts a turn in which n frames moved.
func (w *worker) turned(n int) {
	if w.turns++; n == 0 {
		w.empty++
	}
	w.beat.Store(w.turns)
	if w.turns%observeEvery == 0 {
		w.observe()
	}
}

// observe looks at the queues, before they are drained, and shows what was counted.
func (w *worker) observe() {
	depth := 0
	for _, r := range w.in {
		if r != nil {
			depth += r.len()
		}
	}
	q := &w.queued
	if w.samples == 0 || depth < q.min {
		q.min = depth
	}
	q.max, q.sum = max(q.max, depth), q.sum+depth
	w.samples++
	w.show(time.Now())
}

// show lets others see what was counted, unless one is looking just now: a worker waits for nobody.
func (w *worker) show(now time.Time) {
	s := &w.shown
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	c := &s.counters
	c.turns, c.empty, c.frames, c.batches = w.turns, w.empty, w.frames, w.batches
	if now.Sub(w.began) < window {
		return
	}
	s.last = w.tally
	w.began, w.samples, w.sojourn = now, 0, histogram{}
	w.queued.min, w.queued.max, w.queued.sum = 0, 0, 0
}

// stamp notes on r, before it is published, when that was, for one batch of stampEvery.
func (w *worker) stamp(r *ring) {
	if r.batches++; r.batches%stampEvery == 0 && r.stamp.Load() == 0 { // pairs with arrived: the last one was read
		r.stamped.Store(int64(time.Since(w.base)))
		r.stamp.Store(r.staged) // pairs with arrived
	}
}

// arrived notes how long the batch that was stamped has waited, when it has been sent.
func (w *worker) arrived(r *ring) {
	if at := r.stamp.Load(); at != 0 && r.head.Load() >= at { // pairs with stamp: stamped is written
		w.sojourn.record(time.Since(w.base) - time.Duration(r.stamped.Load()))
		r.stamp.Store(0) // pairs with stamp: it may be written again
	}
}

// full returns what is known of w. The scheduler's figures are missing if the thread has ended.
func (w *worker) full(pair string) (WorkerStats, error) {
	s := WorkerStats{WorkerInfo: w.info(pair)}
	err := schedstat(s.TID, &s)
	h := &w.shown
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Frames, s.Batches = h.counters.frames, h.counters.batches
	last := &h.last
	if last.samples > 0 {
		s.QueueMin, s.QueueMax = last.queued.min, last.queued.max
		s.QueueMean = float64(last.queued.sum) / float64(last.samples)
	}
	s.SojournP50, s.SojournP99, s.SojournMax = last.sojourn.quantile(0.5), last.sojourn.quantile(0.99), last.sojourn.max
	return s, err
}

// schedstat reads the scheduler's figures of a thread (Documentation/scheduler/sched-stats.rst).
func schedstat(tid int, s *WorkerStats) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid))
	if err != nil {
		return fmt.Errorf("read schedstat of thread %d: %w", tid, err)
	}
	if _, err := fmt.Sscan(string(b), &s.Run, &s.Delay, &s.Slices); err != nil {
		return fmt.Errorf("read schedstat of thread %d: %q: %w", tid, b, err)
	}
	return nil
}

// WorkerStats returns all that is known of the pool's workers, and behind them of the pollers. It reads
// a file per worker. The error is of the scheduler's figures, of which the rest doesn't depend.
func (p *Pool) WorkerStats() ([]WorkerStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []WorkerStats
	var errs []error
	p.eachWorker(func(w *worker, pair string) {
		s, err := w.full(pair)
		all, errs = append(all, s), append(errs, err)
	})
	return all, errors.Join(errs...)
}
