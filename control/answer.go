package control

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/port"
)

// Pairs returns all pairs, in the order of the configuration.
func (d *Daemon) Pairs() []Pair {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Pair, 0, len(d.pairs))
	if d.closed {
		return all
	}
	for _, p := range d.pairs {
		all = append(all, p.answer())
	}
	return all
}

// Pair returns the pair of that name.
func (d *Daemon) Pair(name string) (Pair, bool) {
	for _, p := range d.Pairs() {
		if p.Name == name {
			return p, true
		}
	}
	return Pair{}, false
}

// Stat returns all counters.
func (d *Daemon) Stat() Stat {
	s := Stat{Pairs: d.Pairs()}
	for _, w := range d.pool.Workers() {
		s.Workers = append(s.Workers, Worker(w))
	}
	return s
}

// Audit checks that every ledger balances. It may be asked under full load: a worker's
// share is read between two of its updates.
func (d *Daemon) Audit() Audit {
	a := Audit{Findings: []Finding{}}
	for _, p := range d.Pairs() {
		a.Pairs++
		for _, x := range []struct {
			label string
			Direction
		}{{"a→b", p.AB}, {"b→a", p.BA}} {
			a.Frames += x.Rx
			if x.Imbalance != 0 {
				a.Findings = append(a.Findings, Finding{p.Name, x.label, fmt.Sprintf(
					"rx %d = tx %d + drops + queued %d is off by %d frames", x.Rx, x.Tx, x.Queued, x.Imbalance)})
			}
			for _, s := range x.Workers {
				if s.Imbalance != 0 {
					a.Findings = append(a.Findings, Finding{p.Name, x.label, fmt.Sprintf(
						"worker %d is off by %d frames", s.Worker, s.Imbalance)})
				}
			}
		}
	}
	return a
}

func (p *pair) answer() Pair {
	ab, ba := p.lanes.Ledgers()
	return Pair{
		Name: p.cfg.Name, State: p.ends.State().String(), Datapath: p.cfg.Datapath, Mode: p.cfg.Mode,
		Why: p.why, Steer: p.steer(), Workers: []int{p.lanes.AB.Reader(), p.lanes.BA.Reader()},
		A: answerEnd(p.ends.A, p.ports.kind[0]), B: answerEnd(p.ends.B, p.ports.kind[1]),
		AB: answerLedger(&ab), BA: answerLedger(&ba),
	}
}

func (p *pair) steer() string {
	if p.cfg.Mode != "pool" {
		return ""
	}
	return "user"
}

func answerEnd(e *epair.End, kind string) End {
	return End{
		Kind: e.Kind(), Name: e.Name(), Netns: e.Netns(), State: e.State().String(),
		MAC: e.MAC().String(), MTU: e.MTU(), Addresses: e.Addresses(), Port: kind,
	}
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

// ThisVersion returns the version of this program.
func ThisVersion() Version {
	v := Version{Version: "devel", Go: runtime.Version()}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" {
		v.Version = bi.Main.Version
	}
	return v
}
