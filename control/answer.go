package control

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/epair-net/epair/epair"
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
	a := Pair{
		Name: p.cfg.Name, State: p.ends.State().String(), Datapath: p.cfg.Datapath, Mode: p.cfg.Mode,
		Why: p.why, A: answerEnd(p.ends.A), B: answerEnd(p.ends.B),
	}
	p.carrier.answer(&a)
	return a
}

func answerEnd(e *epair.End) End {
	return End{
		Kind: e.Kind(), Name: e.Name(), Netns: e.Netns(), State: e.State().String(),
		MAC: e.MAC().String(), MTU: e.MTU(), Addresses: e.Addresses(),
	}
}

// ThisVersion returns the version of this program.
func ThisVersion() Version {
	v := Version{Version: "devel", Go: runtime.Version()}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" {
		v.Version = bi.Main.Version
	}
	return v
}
