package fanout

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// Mode says where the work of a pair runs.
type Mode string

// The modes of the user datapath.
const (
	Inline Mode = "inline" // one worker of the pool serves the pair; no flow hash
	Fanned Mode = "pool"   // the flow hash picks the worker of each frame
	Polled Mode = "poller" // a pinned thread of the pair's own busy-polls
)

// PairConfig describes a pair to forward.
type PairConfig struct {
	Name     string
	Mode     Mode
	A, B     port.Opener
	Steering *Steering  // mode pool; nil: that of the pool, if it has one
	Poller   PollerRule // mode poller
	// Spread is the hash and table of the programs by which the kernel spreads the frames of ends
	// that are port.Spreaders, when the pair is added in mode pool; nil: it doesn't. What the ends' Tx
	// take must have left when Send returns: halves share them.
	Spread *Steering
}

// Pair is a pair that is being forwarded.
type Pair struct {
	Name   string
	Mode   Mode  // in which it was added; see CurrentMode
	AB, BA *Lane // of directions that are spread, the first halves

	mode atomic.Value // Mode, as it is now

	// The pool's own.
	halves   []*Lane // all that there are of both directions
	index    int     // how many pairs were added before it: spreads them over the workers
	own      *worker
	rule     PollerRule
	steering *Steering // nil: the pool's
}

// CurrentMode returns the mode that the pair is in now.
func (p *Pair) CurrentMode() Mode { return p.mode.Load().(Mode) }

// lanes returns the lanes that there are.
func (p *Pair) lanes() []*Lane { return p.halves }

// Ledgers returns what became of the frames of both directions. They are exact at any moment.
func (p *Pair) Ledgers() (ab, ba Ledger) {
	ab, ba = p.AB.ledger(), p.BA.ledger()
	for _, l := range p.lanes() {
		if l.half == 0 {
			continue
		}
		sum, half := &ab, l.ledger()
		if l.back {
			sum = &ba
		}
		sum.merge(&half)
	}
	return ab, ba
}

// Add opens the ports of a pair and starts to forward. All or nothing.
func (p *Pool) Add(cfg PairConfig) (*Pair, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("add pair %s: %w", cfg.Name, ErrClosed)
	}
	pair := &Pair{Name: cfg.Name, Mode: cfg.Mode, index: p.added, rule: cfg.Poller, steering: cfg.Steering}
	pair.mode.Store(cfg.Mode)
	pl, err := p.place(pair, cfg.Mode)
	if err == nil {
		pair.own = pl.own
		err = p.open(pair, &cfg, &pl)
	}
	if err == nil {
		err = p.begin(pair)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add pair %s: %w", cfg.Name, err), p.remove(pair))
	}
	if p.steering == nil {
		p.steering = cfg.Steering
	}
	p.added++
	p.pairs = append(p.pairs, pair)
	return pair, nil
}

// open makes the lanes and opens their ports, each on the thread that will use it.
func (p *Pool) open(pair *Pair, cfg *PairConfig, pl *place) error {
	ab := &Lane{from: cfg.A, to: cfg.B}
	ba := &Lane{from: cfg.B, to: cfg.A, back: true}
	for _, l := range []*Lane{ab, ba} {
		l.txs = make([]port.Tx, len(p.workers)+1)
		pair.halves = append(pair.halves, l)
		pair.halves = append(pair.halves, l.divide(cfg.Spread, pl)...)
	}
	pair.AB, pair.BA = ab, ba
	for _, l := range pair.lanes() {
		l.pair = pair.Name
		l.prepare(p, pl)
		r := l.reader.Load()
		err := r.do(func() (err error) {
			l.rx, err = l.from.OpenRx(port.Worker{ID: r.portID, Arena: l.arena})
			return err
		})
		if err != nil {
			return fmt.Errorf("end %s: %w", l.near(), err)
		}
		if err = l.openTxs(pl.senders); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes what l needs before its ports are open.
func (l *Lane) prepare(p *Pool, pl *place) {
	r := pl.reader(l)
	l.reader.Store(r)
	l.arena = r.arena.View()
	l.cells = make([]cell, len(p.workers)+1)
	if pl.steer == nil {
		return
	}
	l.steer, l.buckets = pl.steer, make([]bucket, pl.steer.table.Size())
	for i := range l.buckets {
		k := int32(pl.steer.table.Worker(i))
		l.buckets[i] = bucket{worker: k, want: k}
	}
}

// openTxs opens the transmitting halves that senders need and don't have yet.
func (l *Lane) openTxs(senders []*worker) error {
	for _, w := range senders {
		if l.txs[w.id] != nil {
			continue
		}
		err := w.do(func() (err error) {
			l.txs[w.id], err = l.to.OpenTx(port.Worker{ID: w.portID, Arena: w.arena})
			return err
		})
		if err != nil {
			return fmt.Errorf("end %s: %w", l.far(), err)
		}
	}
	return nil
}

// closeTxs closes the transmitting halves of workers that are not among senders.
func (l *Lane) closeTxs(workers, senders []*worker) error {
	var errs []error
	for _, w := range workers {
		if tx := l.txs[w.id]; tx != nil && !slices.Contains(senders, w) {
			errs = append(errs, w.do(tx.Close))
			l.txs[w.id] = nil
		}
	}
	return errors.Join(errs...)
}

// begin lets the readers start.
func (p *Pool) begin(pair *Pair) error {
	for _, l := range pair.lanes() {
		p.enter(l)
		w := l.reader.Load()
		if err := w.do(func() error { return w.attach(l) }); err != nil {
			p.leave(l)
			return err
		}
		l.attached = true
	}
	return nil
}

// Remove stops forwarding a pair and closes its ports. Frames that were
// received are sent first. It is idempotent.
func (p *Pool) Remove(pair *Pair) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.pairs, pair) {
		return nil
	}
	return p.remove(pair)
}

func (p *Pool) remove(pair *Pair) error {
	p.pairs = slices.DeleteFunc(p.pairs, func(q *Pair) bool { return q == pair })
	errs := []error{p.end(pair)}
	if pair.own != nil {
		errs = append(errs, p.stopPoller(pair.own))
	}
	return errors.Join(errs...)
}

// end undoes begin and open: no more frames are received, those on the rings are sent, then
// the ports close.
func (p *Pool) end(pair *Pair) error {
	var errs []error
	workers := p.workers
	if pair.own != nil {
		workers = []*worker{pair.own}
	}
	begun := slices.DeleteFunc(slices.Clone(pair.lanes()), func(l *Lane) bool { return !l.attached })
	for _, l := range begun {
		r := l.reader.Load()
		errs = append(errs, r.do(func() error { return r.detach(l) }))
	}
	for _, w := range workers {
		if len(begun) > 0 {
			errs = append(errs, w.do(func() error { w.drainAll(); return nil }))
		}
	}
	for _, l := range begun {
		p.leave(l)
		l.attached = false
	}
	for _, l := range pair.lanes() {
		errs = append(errs, l.closeTxs(workers, nil))
		if l.rx != nil {
			errs = append(errs, l.reader.Load().do(l.rx.Close))
		}
	}
	return errors.Join(errs...)
}
