package xdp

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/epair-net/epair/fanout/port"
)

// frames is how many frames a long test moves: EPAIR_FRAMES, or n, which takes four times as long
// under the race detector.
func frames(n uint64) uint64 {
	if v, err := strconv.ParseUint(os.Getenv("EPAIR_FRAMES"), 10, 64); err == nil {
		return v
	}
	if raceEnabled {
		return n / 4
	}
	return n
}

// worker forwards what next gives it, by a transmitting half of its own.
type worker struct {
	tx   port.Tx
	in   chan entry
	sum  port.Tally
	done chan struct{}
}

// entry is a run of frames that is handed over.
type entry struct {
	n int
	f [port.MaxBatch]port.Frame
}

// reader receives from one end and spreads the frames over workers, by flow.
type reader struct {
	rx      port.Rx
	workers []*worker
	stop    atomic.Bool
	rxed    atomic.Uint64
	done    chan error
}

func newReader(t testing.TB, from, to *End, workers int) *reader {
	t.Helper()
	r := &reader{done: make(chan error, 1)}
	rx, err := from.OpenRx(port.Worker{})
	if err != nil {
		t.Fatal(err)
	}
	r.rx = rx
	for id := range workers {
		tx, err := to.OpenTx(port.Worker{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		r.workers = append(r.workers, &worker{tx: tx, in: make(chan entry, 4), done: make(chan struct{})})
	}
	return r
}

func (w *worker) run(rx port.Rx) {
	defer close(w.done)
	for e := range w.in {
		w.tx.Send(rx, e.f[:e.n], &w.sum)
	}
}

// start begins to forward.
func (r *reader) start(t testing.TB) {
	t.Cleanup(func() { r.end(t) })
	go r.run()
}

// run forwards until it is stopped. With one worker it is the worker itself.
func (r *reader) run() {
	inline := len(r.workers) == 1
	if !inline {
		for _, w := range r.workers {
			go w.run(r.rx)
		}
	}
	var b [port.MaxBatch]port.Frame
	for {
		n, err := r.rx.Receive(b[:])
		r.rxed.Add(uint64(n))
		switch {
		case inline:
			r.workers[0].tx.Send(r.rx, b[:n], &r.workers[0].sum)
		case n > 0:
			r.spread(b[:n])
		}
		if err != nil && !errors.Is(err, port.ErrNoBuffer) {
			r.done <- err
			return
		}
		if n == 0 {
			if r.stop.Load() {
				r.done <- nil
				return
			}
			runtime.Gosched()
		}
	}
}

func (r *reader) spread(b []port.Frame) {
	runs := make([]entry, len(r.workers))
	for i := range b {
		flow := binary.NativeEndian.Uint32(r.rx.Bytes(&b[i])[ethHdrLen:]) % flows
		e := &runs[flow%uint32(len(runs))]
		e.f[e.n] = b[i]
		e.n++
	}
	for i := range runs {
		if runs[i].n > 0 {
			r.workers[i].in <- runs[i]
		}
	}
}

// end stops forwarding and returns what was received and what became of it.
func (r *reader) end(t testing.TB) (rxed uint64, sum port.Tally) {
	t.Helper()
	if r.stop.Swap(true) {
		return
	}
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	for _, w := range r.workers {
		if close(w.in); len(r.workers) > 1 {
			<-w.done
		}
		sum.Frames += w.sum.Frames
		sum.Bytes += w.sum.Bytes
		sum.Drops.Add(&w.sum.Drops)
		if err := w.tx.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := r.rx.Close(); err != nil {
		t.Error(err)
	}
	if r.rxed.Load() != sum.Frames+sum.Drops.Total() {
		t.Errorf("received %d, but %+v", r.rxed.Load(), sum)
	}
	return r.rxed.Load(), sum
}

// TestTransfer: frames of all lengths cross below capacity; none is lost, none is changed, and
// those of a flow keep their order, whether one worker forwards them or several.
func TestTransfer(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers int
		world   func(t testing.TB) *world
		n       uint64
	}{
		{"one worker", 1, func(t testing.TB) *world { return newWorld(t, 1500, 1) }, 1_000_000},
		{"three queues, hand-over to three", 3, func(t testing.TB) *world { return newWorld(t, 1500, 3) }, 200_000},
		{"one queue, hand-over to three", 3, func(t testing.TB) *world { return newFanWorld(t, 1500, 3) }, 200_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := frames(c.n)
			w := c.world(t)
			p := w.open(t, PairConfig{Workers: c.workers})
			r := newReader(t, p.A, p.B, c.workers)
			s := newStream(t, w, 128)
			r.start(t)
			s.start(t, n)
			s.wait(t, n)
			s.end(t)
			if rxed, sum := r.end(t); rxed != n || sum.Frames != n {
				t.Errorf("received %d, sent %+v, want %d", rxed, sum, n)
			}
			if got := s.got.Load(); got != n || s.lost.Load() != 0 {
				t.Errorf("%d of %d frames came, %d lost", got, n, s.lost.Load())
			}
		})
	}
}
