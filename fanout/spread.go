package fanout

// The kernel can spread the frames that an end receives over its workers' own halves, by the same hash and
// table as the pool's (port.Spreader). Each half is a lane of its own, with one reader, so the
// order of a flow rests on what it always does, and on one thing more: a flow comes by one
// half only, its home.
//
//	home      worker of the half     of the bucket, in the table by which the kernel spreads: it is never
//	                                 changed while the halves are open
//	owner     who sends              of the bucket, in the pool's table: a change of that moves it, fenced
//	                                 on each half by itself. Until then, and after it, frames
//	                                 come home and are handed over to the owner
//	reader    who receives a half    in mode pool the half's worker, else the pair's: SetMode shifts all halves
//
// What isn't where it belongs, the ports of strict kinds can't help when a link goes down or up. Such a
// frame may be earlier or later than those at home, and nobody can tell: it is dropped.

import "github.com/epair-net/epair/fanout/port"

// divide returns the further halves of l, which is the first, if the kernel spreads
// the direction over the workers of pl.
func (l *Lane) divide(s *Steering, pl *place) []*Lane {
	from, ok := l.from.(port.Spreader)
	if !ok || s == nil || pl.steer == nil || s.check(len(pl.senders)) != nil {
		return nil
	}
	n := len(pl.senders)
	if l.spread = from.Spread(n); l.spread == port.Single {
		return nil
	}
	if l.spread == port.Strict {
		l.home = s
	}
	var more []*Lane
	for i := 1; i < n; i++ {
		more = append(more, &Lane{from: l.from, to: l.to, back: l.back, half: i, spread: l.spread, home: l.home, txs: l.txs})
	}
	return more
}

// sift drops what the kernel put into this half though it belongs to another, and returns the rest.
func (w *worker) sift(l *Lane, b []port.Frame) []port.Frame {
	home, rest, lost := l.home, b[:0], w.lost[:0]
	for i := range b {
		f := &b[i]
		f.Hash = hash(home.hasher, l.rx, f)
		if home.table.Worker(home.table.Bucket(f.Hash)) == l.half {
			rest = append(rest, *f)
		} else {
			lost = append(lost, *f)
		}
	}
	if len(lost) == 0 {
		return rest
	}
	c := &l.cells[w.id]
	w.d = delta{rx: uint64(len(lost)), queued: int(c.queued.Load())} // our Tx is not touched here
	for i := range lost {
		w.d.rxBytes += uint64(lost[i].Len)
	}
	w.d.Drops[port.RxMisplaced] = uint64(len(lost))
	c.apply(&w.d)
	l.rx.Release(w.portID, lost)
	return rest
}
