package fanout

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/fanout/port"
)

// SetMode changes the mode of a pair while it forwards: no frame is lost or overtaken. All or nothing.
//
//	step    what                                                     frames meanwhile
//	open    transmitting halves of workers that had none             flow as before
//	gather  all buckets go to the reader (mode pool), fenced         flow
//	shift   the receiving half goes over to another thread, if the
//	        mode has another reader: nothing of the lane is held     wait in the port
//	spread  buckets go to the workers of the table (mode pool)       flow
//	close   transmitting halves that nobody needs any more           flow
//
// Receiving halves stay open all the time: what a socket doesn't hold while it's closed is lost.
func (p *Pool) SetMode(pair *Pair, mode Mode) (Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return Change{}, fmt.Errorf("set mode of pair %s: %w", pair.Name, ErrClosed)
	case !slices.Contains(p.pairs, pair):
		return Change{}, fmt.Errorf("set mode of pair %s: it was removed", pair.Name)
	case pair.CurrentMode() == mode:
		return Change{}, nil
	}
	c := p.newChange()
	err := p.setMode(c, pair, mode)
	r := c.sum(p, err)
	if err != nil {
		return r, fmt.Errorf("set mode %s of pair %s: %w", mode, pair.Name, err)
	}
	return r, nil
}

func (p *Pool) setMode(c *change, pair *Pair, mode Mode) error {
	to, err := p.place(pair, mode)
	if err != nil {
		return err
	}
	from := p.placed(pair)
	if err := c.relocate(pair, &from, &to); err != nil {
		return errors.Join(err, p.vacate(pair, to.own, from.senders))
	}
	pair.own = to.own
	pair.mode.Store(mode)
	return p.vacate(pair, from.own, to.senders)
}

// placed returns which workers serve a pair now.
func (p *Pool) placed(pair *Pair) place {
	pl := place{first: pair.AB.reader.Load(), second: pair.BA.reader.Load(), own: pair.own, steer: pair.AB.steer}
	pl.senders = []*worker{pl.first}
	if pair.CurrentMode() == Fanned {
		pl.senders = p.workers
	}
	return pl
}

// relocate lets the workers of to serve the pair. Those of from do again if it can't be done.
func (c *change) relocate(pair *Pair, from, to *place) error {
	for _, l := range pair.lanes() {
		if err := l.openTxs(to.senders); err != nil {
			return err
		}
	}
	if err := c.settle(pair, to); err != nil {
		return errors.Join(err, c.settle(pair, from))
	}
	return nil
}

// settle is the steps gather, shift and spread.
func (c *change) settle(pair *Pair, to *place) error {
	lanes := pair.lanes()
	if err := c.move(lanes, toReader); err != nil {
		return err
	}
	for _, l := range lanes {
		if err := c.shift(l, to.reader(l), to.steer); err != nil {
			return err
		}
	}
	return c.move(lanes, func(*Lane) *Steering { return to.steer })
}

// shift makes to the reader of l, and the owner of all its buckets. The reader must be the owner
// until then.
func (c *change) shift(l *Lane, to *worker, s *Steering) error {
	var buckets []bucket
	if s != nil {
		buckets = make([]bucket, s.table.Size())
	}
	from := l.reader.Load()
	if from == to {
		return to.ask(c.giveUp, func() error { to.adopt(l, s, buckets); return nil })
	}
	start := time.Now()
	if err := from.ask(c.giveUp, func() error { return from.detach(l) }); err != nil {
		return errors.Join(err, from.ask(c.giveUp, func() error { return from.attach(l) }))
	}
	if err := waitSent(l.txs[from.id], c.giveUp); err != nil {
		return errors.Join(err, from.ask(c.giveUp, func() error { return from.attach(l) }))
	}
	err := l.give(c.giveUp, from, to, s, buckets)
	c.lanes++
	c.blocked = max(c.blocked, time.Since(start))
	return err
}

// give hands the receiving half of l, which nobody uses and of which no frame is held, from one
// worker to the other.
func (l *Lane) give(giveUp time.Duration, from, to *worker, s *Steering, buckets []bucket) error {
	turn := func(to *worker, s *Steering, buckets []bucket) error {
		l.arena.Turn(to.arena)
		l.reader.Store(to)
		l.epoch.Add(1) // pairs with ledger: one that was begun before is read again
		return to.ask(giveUp, func() error {
			to.adopt(l, s, buckets)
			return to.attach(l)
		})
	}
	err := turn(to, s, buckets)
	if err != nil {
		err = errors.Join(err, turn(from, nil, nil))
	}
	return err
}

// waitSent waits until what tx has taken has left. Its owner doesn't use it meanwhile.
func waitSent(tx port.Tx, giveUp time.Duration) error {
	for end := time.Now().Add(giveUp); tx.Queued() > 0; time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			return fmt.Errorf("wait for %d frames to leave: %w", tx.Queued(), ErrStuck)
		}
	}
	return nil
}

// vacate closes the transmitting halves of workers that aren't among senders, and stops
// the poller that isn't needed any more.
func (p *Pool) vacate(pair *Pair, own *worker, senders []*worker) error {
	workers := slices.Clone(p.workers)
	if own != nil {
		workers = append(workers, own)
	}
	var errs []error
	for _, l := range pair.lanes() {
		errs = append(errs, l.closeTxs(workers, senders))
	}
	if own != nil {
		errs = append(errs, p.stopPoller(own))
	}
	return errors.Join(errs...)
}
