package fanout

import (
	"runtime"
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// cell is what one worker did for one lane. Each update keeps
//
//	rx + taken = tx + Σ drops + handed + queued
//
// so the sum over the workers balances at any set of moments, and a frame that
// a worker loses or doubles shows as a difference.
//
// Concurrency contract: written by its worker only, read by anyone. seq is odd
// while an update is under way.
type cell struct {
	seq                            atomic.Uint32
	rx, rxBytes, tx, txBytes       atomic.Uint64
	handed, taken, batches, queued atomic.Uint64
	drops                          [port.NumReasons]atomic.Uint64
	_                              [64]byte // the next cell is another worker's
}

// delta is what one turn adds to a cell. It is the worker's scratch.
type delta struct {
	rx, rxBytes, handed, taken uint64
	queued                     int // of the worker's Tx, as it is now
	port.Tally
}

func add(v *atomic.Uint64, n uint64) {
	if n != 0 {
		v.Store(v.Load() + n) // one writer: no read-modify-write needed
	}
}

// apply adds d to the cell.
func (c *cell) apply(d *delta) {
	s := c.seq.Load()
	c.seq.Store(s + 1) // pairs with read
	add(&c.rx, d.rx)
	add(&c.rxBytes, d.rxBytes)
	add(&c.tx, d.Frames)
	add(&c.txBytes, d.Bytes)
	add(&c.handed, d.handed)
	add(&c.taken, d.taken)
	add(&c.batches, 1)
	c.queued.Store(uint64(d.queued))
	for i := range d.Drops {
		add(&c.drops[i], d.Drops[i])
	}
	c.seq.Store(s + 2) // pairs with read
}

// WorkerLedger is one worker's share of a lane.
type WorkerLedger struct {
	Rx, RxBytes uint64 // frames received by this worker's port
	Tx, TxBytes uint64 // frames this worker handed to the kernel
	Handed      uint64 // frames given to other workers
	Taken       uint64 // frames taken over from other workers
	Batches     uint64 // turns in which anything was done
	Queued      uint64 // in this worker's Tx
	Drops       port.Drops
}

// Imbalance is 0 for a true ledger.
func (l *WorkerLedger) Imbalance() int64 {
	return int64(l.Rx + l.Taken - l.Tx - l.Drops.Total() - l.Handed - l.Queued)
}

// read returns the cell as it was between two updates.
func (c *cell) read() WorkerLedger {
	for {
		s := c.seq.Load()
		if s&1 == 0 {
			l := WorkerLedger{
				Rx: c.rx.Load(), RxBytes: c.rxBytes.Load(), Tx: c.tx.Load(), TxBytes: c.txBytes.Load(),
				Handed: c.handed.Load(), Taken: c.taken.Load(), Batches: c.batches.Load(), Queued: c.queued.Load(),
			}
			for i := range l.Drops {
				l.Drops[i] = c.drops[i].Load()
			}
			if c.seq.Load() == s { // pairs with apply: nothing was written meanwhile
				return l
			}
		}
		runtime.Gosched() // the writer may share our CPU
	}
}

// Ledger is what became of a lane's frames: Rx = Tx + Σ Drops + Queued.
type Ledger struct {
	Rx, RxBytes uint64 // frames that reached epair, those lost in front of the port included
	Tx, TxBytes uint64 // frames handed to the far interface
	Queued      uint64 // received, neither sent nor dropped yet
	Drops       port.Drops
	Workers     []WorkerLedger // by worker; the last is a poller's
}

// Imbalance is 0 for a true ledger.
func (l *Ledger) Imbalance() int64 {
	return int64(l.Rx - l.Tx - l.Drops.Total() - l.Queued)
}

// ledger adds the cells up. Each balances by itself, so the sum does, although
// they are read one after the other. The reader's comes last: no frame can then
// have been taken that wasn't handed. If the reader changes meanwhile, they are read again.
func (l *Lane) ledger() Ledger {
	pre := l.rx.Stats()
	for {
		epoch, reader := l.epoch.Load(), l.reader.Load().id
		sum := Ledger{Drops: pre.Drops, Rx: pre.Drops.Total(), Workers: make([]WorkerLedger, len(l.cells))}
		for i := range l.cells {
			if i != reader {
				sum.add(i, l.cells[i].read())
			}
		}
		sum.add(reader, l.cells[reader].read())
		if l.epoch.Load() == epoch { // pairs with shift
			return sum
		}
	}
}

func (l *Ledger) add(i int, w WorkerLedger) {
	l.Workers[i] = w
	l.Rx += w.Rx
	l.RxBytes += w.RxBytes
	l.Tx += w.Tx
	l.TxBytes += w.TxBytes
	l.Queued += w.Queued + w.Handed - w.Taken // below zero only until the reader is added
	l.Drops.Add(&w.Drops)
}

// merge adds another half of the same direction.
func (l *Ledger) merge(o *Ledger) {
	l.Rx += o.Rx
	l.RxBytes += o.RxBytes
	l.Tx += o.Tx
	l.TxBytes += o.TxBytes
	l.Queued += o.Queued
	l.Drops.Add(&o.Drops)
	for i := range l.Workers {
		w, v := &l.Workers[i], &o.Workers[i]
		w.Rx += v.Rx
		w.RxBytes += v.RxBytes
		w.Tx += v.Tx
		w.TxBytes += v.TxBytes
		w.Handed += v.Handed
		w.Taken += v.Taken
		w.Batches += v.Batches
		w.Queued += v.Queued
		w.Drops.Add(&v.Drops)
	}
}
