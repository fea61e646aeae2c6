package fanout

import (
	"errors"
	"fmt"
)

// place is which workers serve a pair.
type place struct {
	first, second *worker   // receive a→b and b→a, if they aren't spread
	senders       []*worker // all that send
	own           *worker   // a poller, not the pool's
	steer         *Steering // nil: whoever receives sends
}

// reader returns the worker that receives a lane.
func (pl *place) reader(l *Lane) *worker {
	switch {
	case pl.steer != nil && l.Spread():
		return pl.senders[l.half]
	case l.back:
		return pl.second
	}
	return pl.first
}

// place finds the workers for a pair in a mode, and starts its poller.
func (p *Pool) place(pair *Pair, mode Mode) (pl place, err error) {
	n := len(p.workers)
	pl.first = p.workers[pair.index%n]
	pl.second = pl.first
	switch mode {
	case Inline:
	case Fanned:
		pl.steer = pair.steering
		if pl.steer == nil {
			pl.steer = p.steering
		}
		if pl.steer == nil {
			return pl, errors.New("mode pool needs a hash and a table")
		}
		if err := pl.steer.check(n); err != nil {
			return pl, err
		}
		pl.second = p.workers[(pair.index+1)%n]
		pl.senders = p.workers
		if n == 1 { // every bucket is its own
			pl.steer = nil
		}
		return pl, nil
	case Polled:
		if pl.own, err = p.newPoller(pair); err != nil {
			return pl, err
		}
		pl.first, pl.second = pl.own, pl.own
	default:
		return pl, fmt.Errorf("unknown mode %q (use inline, pool or poller)", mode)
	}
	pl.senders = []*worker{pl.first}
	return pl, nil
}

// newPoller starts the thread of a poller pair on the next CPU of the pool.
func (p *Pool) newPoller(pair *Pair) (*worker, error) {
	cpu := p.cfg.CPUs[pair.index%len(p.cfg.CPUs)]
	name := fmt.Sprintf("%s/p%d", p.cfg.Name, pair.index)
	w, err := p.newWorker(len(p.workers), cpu, name, &poller{PollerRule: pair.rule.withDefaults()})
	if err != nil {
		return nil, err
	}
	w.spins, w.portID = true, p.pollerID()
	p.pollers[w.portID] = w
	p.reserveThreads()
	if err := w.start(p.cfg.Sched); err != nil {
		delete(p.pollers, w.portID)
		return nil, errors.Join(err, w.wait.Close())
	}
	p.listThreads()
	return w, nil
}

// pollerID returns the lowest ID that no worker has: what ports keep per worker is then used again.
func (p *Pool) pollerID() int {
	id := len(p.workers)
	for p.pollers[id] != nil {
		id++
	}
	return id
}

// stopPoller ends newPoller.
func (p *Pool) stopPoller(w *worker) error {
	delete(p.pollers, w.portID)
	p.listThreads()
	return w.stop()
}
