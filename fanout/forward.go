package fanout

import (
	"errors"

	"github.com/epair-net/epair/fanout/port"
)

// receive takes one batch of l and sees to each of its frames. more tells
// whether the next turn should ask again without waiting for the descriptor.
func (w *worker) receive(l *Lane) (n int, more bool) {
	if l.moving > 0 {
		if w.sweep(l); !l.stalled.IsZero() {
			return 0, false // resume puts it on the active list again
		}
	}
	w.enter(l, receiving)
	n, err := l.rx.Receive(w.batch[:budget])
	if n > 0 {
		w.count(n)
		own := w.batch[:n]
		if l.home != nil {
			own = w.sift(l, own)
		}
		if l.steer != nil {
			own = w.fanOut(l, own)
		}
		if len(own) > 0 {
			w.sendOwn(l, own)
		}
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

// sendOwn sends frames that this worker received and that are its own to send.
func (w *worker) sendOwn(l *Lane, own []port.Frame) {
	w.d = delta{rx: uint64(len(own))}
	for i := range own {
		w.d.rxBytes += uint64(own[i].Len)
	}
	tx := l.txs[w.id]
	w.enter(l, sending)
	tx.Send(l.rx, own, &w.d.Tally)
	w.d.queued = tx.Queued()
	l.cells[w.id].apply(&w.d)
}

// fanOut classifies a batch, hands the frames of other workers' buckets to them and
// returns the rest, in w.own.
//
// The cell is written before the rings are published: no worker can then have taken
// a frame that the ledger doesn't have as handed.
func (w *worker) fanOut(l *Lane, b []port.Frame) []port.Frame {
	own, lost := w.own[:0], w.lost[:0]
	c := &l.cells[w.id]
	w.d = delta{queued: int(c.queued.Load())} // our Tx is not touched here
	hasher, buckets := l.steer.hasher, l.buckets
	hashed := l.home != nil && l.home.hasher == hasher // by sift
	for i := range b {
		f := &b[i]
		if !hashed {
			f.Hash = hash(hasher, l.rx, f)
		}
		k := &buckets[int(f.Hash)&(len(buckets)-1)]
		k.frames++
		k.bytes += uint64(f.Len)
		y := int(k.worker)
		if y == w.id {
			own = append(own, *f)
			continue
		}
		w.d.rx++
		w.d.rxBytes += uint64(f.Len)
		r := w.out[y]
		if !r.push(entry{Frame: *f, lane: l.id}) {
			lost = append(lost, *f)
			continue
		}
		k.last = r.staged // pairs with settled
		w.d.handed++
		w.touch[y] = true
	}
	if l.since += len(b); l.since >= sampleEvery {
		l.sample(l.rx, b) // before others may release them
	}
	if w.d.rx > 0 {
		w.d.Drops[port.HandoverFull] = uint64(len(lost))
		c.apply(&w.d)
		w.publish()
	}
	if len(lost) > 0 {
		l.rx.Release(w.portID, lost)
	}
	return own
}

// publish shows what was staged to the workers it is for, and wakes those that are idle.
func (w *worker) publish() {
	for y, touched := range w.touch {
		if !touched {
			continue
		}
		w.touch[y] = false
		w.stamp(w.out[y])
		w.out[y].publish()
		if w.peers[y].wait.Wake() {
			add(&w.stats.wakes, 1)
		}
	}
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
		w.enter(l, sending)
		tx.Send(l.rx, w.moved[:k], &w.d.Tally)
		w.d.queued = tx.Queued()
		l.cells[w.id].apply(&w.d)
	}
	if len(es) > 0 {
		w.count(len(es))
		r.advance(len(es))
		w.arrived(r)
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
