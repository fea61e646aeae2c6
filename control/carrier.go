package control

import (
	"errors"
	"fmt"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/port"
)

// carrier carries the frames of one pair: workers of the pool, or the kernel.
//
// Concurrency contract: all methods may be called from any goroutine.
type carrier interface {
	// answer fills in what the carrier knows: steering, ports, ledgers.
	answer(*Pair)
	// setMode changes the mode while frames pass. After an error the old mode holds.
	setMode(mode string) (Change, error)
	// empty lets all frames out that wait where only the carrier knows them; cfg is the pair's. It may make the mode inline.
	// It says how many it had to drop.
	empty(cfg *epair.PairConfig) (dropped uint64, err error)
	// close stops carrying and gives everything back. It is idempotent. What answer says from then on is final.
	close() error
}

// userCarrier is the user datapath: the pair's ports and its lanes in the pool.
type userCarrier struct {
	pool  *fanout.Pool
	ports *pairPorts
	lanes *fanout.Pair
}

// carryUser opens the ports of p's ends and hands them to the pool. All or nothing.
func (d *Daemon) carryUser(p *pair) (carrier, error) {
	progs, why := d.programsFor(&p.cfg)
	ports, err := d.ports.open(p.ends, progs)
	if err != nil {
		return nil, fmt.Errorf("open ports of pair %s: %w", p.cfg.Name, err)
	}
	cfg := fanout.PairConfig{
		Name: p.cfg.Name, Mode: fanout.Mode(p.cfg.Mode), A: ports.a, B: ports.b,
		Steering: d.steer, Poller: d.pollerRule(p.cfg),
	}
	if progs != nil {
		cfg.Spread = progs.by
	}
	lanes, err := d.pool.Add(cfg)
	if err != nil {
		return nil, errors.Join(err, ports.close())
	}
	p.why = append(append(p.why, ports.why...), why...)
	return &userCarrier{d.pool, ports, lanes}, nil
}

// programsFor returns the programs by which the kernel spreads a pair's frames; nil if it doesn't.
func (d *Daemon) programsFor(cfg *epair.PairConfig) (*programs, []string) {
	switch {
	case fanout.Mode(cfg.Mode) != fanout.Fanned || len(d.cpus) == 1:
		return nil, nil
	case cfg.Port == "xdp":
		return nil, []string{"steer user: with port xdp one worker receives and hands over"}
	}
	progs, err := d.ports.spread.programs(d.steer)
	if err != nil {
		return nil, []string{"steer user: one worker receives and hands over, as the kernel can't be told where to: " + err.Error()}
	}
	return progs, nil
}

func (c *userCarrier) close() error {
	return errors.Join(c.pool.Remove(c.lanes), c.ports.close())
}

func (c *userCarrier) setMode(mode string) (Change, error) {
	ch, err := c.pool.SetMode(c.lanes, fanout.Mode(mode))
	return answerChange(ch), err
}

func (c *userCarrier) empty(*epair.PairConfig) (uint64, error) { return 0, c.pool.Empty(c.lanes) }

func (c *userCarrier) answer(a *Pair) {
	ab, ba := c.lanes.Ledgers()
	a.AB, a.BA = answerLedger(&ab), answerLedger(&ba)
	a.Workers = []int{c.lanes.AB.Reader(), c.lanes.BA.Reader()}
	a.A.Port, a.B.Port = c.ports.kind[0], c.ports.kind[1]
	if c.lanes.CurrentMode() == fanout.Fanned {
		a.Steer = steerOf(c.lanes)
	}
}

// steerOf says who brings frames to their workers. A pair one of whose ends has one receiving half hands over.
func steerOf(p *fanout.Pair) string {
	if p.AB.Spread() && p.BA.Spread() {
		return "kernel"
	}
	return "user"
}

func answerLedger(l *fanout.Ledger) Direction {
	d := Direction{
		Rx: l.Rx, RxBytes: l.RxBytes, Tx: l.Tx, TxBytes: l.TxBytes, Queued: l.Queued,
		Drops: map[string]uint64{}, Imbalance: l.Imbalance(),
	}
	for r, n := range l.Drops {
		if n > 0 {
			d.Drops[port.Reason(r).String()] = n
		}
	}
	for i := range l.Workers {
		w := &l.Workers[i]
		d.Workers = append(d.Workers, Share{
			Worker: i, Rx: w.Rx, Tx: w.Tx, Handed: w.Handed, Taken: w.Taken, Batches: w.Batches, Imbalance: w.Imbalance(),
		})
	}
	return d
}

// noCarrier carries nothing.
type noCarrier struct{ why string }

func (c noCarrier) answer(a *Pair) {
	a.Trouble, a.Workers = c.why, []int{}
	a.AB, a.BA = Direction{Drops: map[string]uint64{}}, Direction{Drops: map[string]uint64{}}
}

func (c noCarrier) setMode(string) (Change, error) {
	return Change{}, fmt.Errorf("%w: nothing carries the pair: %s (set its datapath)", ErrConflict, c.why)
}

func (noCarrier) empty(*epair.PairConfig) (uint64, error) { return 0, nil }
func (noCarrier) close() error                            { return nil }
