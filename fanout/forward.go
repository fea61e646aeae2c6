package fanout

import (
	"errors"

	"github.com/epair-net/epair/fanout/port"
)

// receive takes one batch of l and sees to each of its frames. more tells
// whether the next turn should ask again without waiting for the descriptor.
func (w *worker) receive(l *Lane) (n int, more bool) {
	n, err := l.rx.Receive(w.batch[:budget])
	if n > 0 {
		w.d = delta{rx: uint64(n)}
		for i := range w.batch[:n] {
			w.d.rxBytes += uint64(w.batch[i].Len)
		}
		own := w.batch[:n]
		if l.steer != nil {
			own = w.fanOut(l, w.batch[:n])
		}
		if tx := l.txs[w.id]; len(own) > 0 {
			tx.Send(l.rx, own, &w.d.Tally)
			w.d.queued = tx.Queued()
		}
		l.cells[w.id].apply(&w.d)
	}
	switch {
	case err == nil:
		return n, n == budget
	case errors.Is(err, port.ErrNoBuffer):
		return n, true
	case errors.Is(err, port.ErrGone):
		l.gone.Store(true)
	}
	return n, false // down or gone: if it comes up again, its descriptor tells
}

// fanOut classifies a batch, hands the frames of other workers' buckets to them and
// returns the rest, in w.own.
func (w *worker) fanOut(l *Lane, b []port.Frame) []port.Frame {
	own, lost := w.own[:0], w.lost[:0]
	for i := range b {
		f := &b[i]
		y := l.steer.worker(l.rx, f)
		if y == w.id {
			own = append(own, *f)
			continue
		}
		if !w.out[y].push(entry{Frame: *f, lane: l.id}) {
			lost = append(lost, *f)
			continue
		}
		w.d.handed++
		w.touch[y] = true
	}
	for y, touched := range w.touch {
		if !touched {
			continue
		}
		w.touch[y] = false
		w.out[y].publish()
		if w.peers[y].wait.Wake() {
			add(&w.stats.wakes, 1)
		}
	}
	if len(lost) > 0 {
		w.d.Drops[port.HandoverFull] += uint64(len(lost))
		l.rx.Release(w.id, lost)
	}
	return own
}

// drain sends what other workers handed over, at most budget frames of each.
func (w *worker) drain() int {
	total := 0
	for _, r := range w.in {
		if r != nil {
			total += w.drainRing(r, budget)
		}
	}
	return total
}

// drainRing sends up to max frames of r, each run of one lane by one Send.
func (w *worker) drainRing(r *ring, max int) int {
	es := r.peek(min(max, port.MaxBatch))
	for i := 0; i < len(es); {
		id, k := es[i].lane, 0
		for i < len(es) && es[i].lane == id {
			w.moved[k] = es[i].Frame
			i, k = i+1, k+1
		}
		l := w.lanes()[id] // published before its first frame was
		w.d = delta{taken: uint64(k)}
		tx := l.txs[w.id]
		tx.Send(l.rx, w.moved[:k], &w.d.Tally)
		w.d.queued = tx.Queued()
		l.cells[w.id].apply(&w.d)
	}
	if len(es) > 0 {
		r.advance(len(es))
	}
	return len(es)
}

// drainAll sends everything that was handed over until now. It runs on the worker.
func (w *worker) drainAll() {
	for _, r := range w.in {
		if r == nil {
			continue
		}
		for left := r.len(); left > 0; {
			left -= w.drainRing(r, left)
		}
	}
}
