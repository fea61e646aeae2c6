package fanout

import (
	"errors"
	"fmt"
	"slices"

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
	Steering *Steering  // mode pool
	Poller   PollerRule // mode poller
}

// Pair is a pair that is being forwarded.
type Pair struct {
	Name   string
	Mode   Mode
	AB, BA *Lane
	own    *worker // mode poller
}

// Ledgers returns what became of the frames of both directions. They are exact at any moment.
func (p *Pair) Ledgers() (ab, ba Ledger) { return p.AB.ledger(), p.BA.ledger() }

// Add opens the ports of a pair and starts to forward. All or nothing.
func (p *Pool) Add(cfg PairConfig) (*Pair, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("add pair %s: %w", cfg.Name, ErrClosed)
	}
	pair := &Pair{Name: cfg.Name, Mode: cfg.Mode}
	first := p.workers[p.added%len(p.workers)]
	second := first
	workers := p.workers
	switch cfg.Mode {
	case Inline:
	case Fanned:
		if cfg.Steering == nil {
			return nil, fmt.Errorf("add pair %s: mode pool needs a hash and a table", cfg.Name)
		}
		second = p.workers[(p.added+1)%len(p.workers)]
	case Polled:
		w, err := p.newPoller(cfg)
		if err != nil {
			return nil, fmt.Errorf("add pair %s: %w", cfg.Name, err)
		}
		pair.own, first, second = w, w, w
		workers = []*worker{w}
	default:
		return nil, fmt.Errorf("add pair %s: unknown mode %q (use inline, pool or poller)", cfg.Name, cfg.Mode)
	}
	err := p.open(pair, &cfg, workers, first, second)
	if err == nil {
		err = p.begin(pair)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add pair %s: %w", cfg.Name, err), p.remove(pair))
	}
	p.added++
	p.pairs = append(p.pairs, pair)
	return pair, nil
}

// newPoller starts the thread of a poller pair on the next CPU of the pool.
func (p *Pool) newPoller(cfg PairConfig) (*worker, error) {
	cpu := p.cfg.CPUs[p.added%len(p.cfg.CPUs)]
	name := fmt.Sprintf("%s/p%d", p.cfg.Name, p.added)
	w, err := p.newWorker(0, cpu, name, &poller{PollerRule: cfg.Poller.withDefaults()})
	if err != nil {
		return nil, err
	}
	w.spins = true
	p.pollers++
	p.reserveThreads()
	if err := w.start(p.cfg.Sched); err != nil {
		p.pollers--
		return nil, errors.Join(err, w.wait.Close())
	}
	return w, nil
}

// open makes both lanes and opens their ports, each on the thread that will use it.
func (p *Pool) open(pair *Pair, cfg *PairConfig, workers []*worker, first, second *worker) error {
	pair.AB = &Lane{reader: first, txs: make([]port.Tx, len(workers)), cells: make([]cell, len(workers))}
	pair.BA = &Lane{reader: second, txs: make([]port.Tx, len(workers)), cells: make([]cell, len(workers))}
	if cfg.Mode == Fanned && len(workers) > 1 { // with one worker every bucket is its own
		pair.AB.steer, pair.BA.steer = cfg.Steering, cfg.Steering
	}
	if cfg.Mode != Fanned {
		workers = []*worker{first}
	}
	for _, l := range []struct {
		*Lane
		from, to port.Opener
	}{{pair.AB, cfg.A, cfg.B}, {pair.BA, cfg.B, cfg.A}} {
		err := l.reader.do(func() (err error) {
			l.rx, err = l.from.OpenRx(port.Worker{ID: l.reader.id, Arena: l.reader.arena})
			return err
		})
		if err != nil {
			return err
		}
		for _, w := range workers {
			err := w.do(func() (err error) {
				l.txs[w.id], err = l.to.OpenTx(port.Worker{ID: w.id, Arena: w.arena})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// begin lets the readers start.
func (p *Pool) begin(pair *Pair) error {
	for _, l := range []*Lane{pair.AB, pair.BA} {
		p.enter(l)
		if err := l.reader.do(func() error { return l.reader.attach(l) }); err != nil {
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
	var errs []error
	for _, l := range []*Lane{pair.AB, pair.BA} {
		if l != nil {
			errs = append(errs, p.end(l, pair.own))
		}
	}
	if pair.own != nil {
		errs = append(errs, pair.own.stop())
		p.pollers--
	}
	return errors.Join(errs...)
}

// end undoes begin and open for one lane: no more frames are received, those on the
// rings are sent, then the ports close.
func (p *Pool) end(l *Lane, own *worker) error {
	var errs []error
	workers := p.workers
	if own != nil {
		workers = []*worker{own}
	}
	if l.attached {
		errs = append(errs, l.reader.do(func() error { return l.reader.detach(l) }))
		for _, w := range workers {
			errs = append(errs, w.do(func() error { w.drainAll(); return nil }))
		}
		p.leave(l)
		l.attached = false
	}
	for i, tx := range l.txs {
		if tx != nil {
			errs = append(errs, workers[i].do(tx.Close))
		}
	}
	if l.rx != nil {
		errs = append(errs, l.reader.do(l.rx.Close))
	}
	return errors.Join(errs...)
}
