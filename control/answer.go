package control

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/rss"
)

// Pairs returns all pairs, in the order in which they were added.
func (d *Daemon) Pairs() []Pair {
	slots := d.pairs.all()
	all := make([]Pair, 0, len(slots))
	for _, s := range slots {
		s.ask(func(p *pair) { all = append(all, p.answer()) })
	}
	return all
}

// Pair returns the pair of that name.
func (d *Daemon) Pair(name string) (a Pair, ok bool) {
	for _, s := range d.pairs.all() {
		if s.name == name {
			ok = s.ask(func(p *pair) { a = p.answer() })
		}
	}
	return a, ok
}

// Stat returns all counters.
func (d *Daemon) Stat() Stat {
	return Stat{Pairs: d.Pairs(), Workers: d.view.get(d.pool)}
}

// RSS returns which worker owns which flow.
func (d *Daemon) RSS() RSS {
	s := d.rss.Load()
	return AnswerRSS(s.Hasher(), s.Table())
}

// AnswerRSS puts a hash and a table into words.
func AnswerRSS(h *rss.Hasher, t *rss.Table) RSS {
	c := h.Config()
	a := RSS{Func: c.Func, Key: c.Key, Symmetric: c.Symmetric, Fields: c.Fields, Inner: c.Inner, Workers: t.Workers()}
	for b := range t.Size() {
		a.Table = append(a.Table, t.Worker(b))
	}
	return a
}

// Pool returns the workers, and what changes did.
func (d *Daemon) Pool() Pool {
	a := Pool{Policy: cmp.Or(d.cfg.Pool.Policy, "other"), Priority: d.cfg.Pool.Priority, Workers: d.view.get(d.pool), Fence: answerFence(d.pool.Fence()), Balance: d.balance.answer()}
	var on []string
	for _, w := range a.Workers {
		if w.Pair == "" {
			on = append(on, strconv.Itoa(w.CPU))
		}
	}
	a.CPUs = strings.Join(on, ",")
	now, past, total := d.pool.Faults()
	a.Stuck, a.Recovered, a.Faults = answerFaults(now), answerFaults(past), total
	return a
}

func answerFence(f fanout.FenceStats) Fence {
	return Fence{
		Changes: f.Changes, Failed: f.Failed, Moved: f.Moved, Held: f.Held,
		MoveP50Micros: micros(f.MoveP50), MoveP99Micros: micros(f.MoveP99), MoveMaxMicros: micros(f.MoveMax),
		BlockedP50Micros: micros(f.BlockedP50), BlockedMaxMicros: micros(f.BlockedMax),
	}
}

func answerChange(c fanout.Change) Change {
	return Change{
		Moved: c.Moved, Held: c.Held, Lanes: c.Lanes,
		TookMicros: micros(c.Took), MoveP50Micros: micros(c.P50), MoveMaxMicros: micros(c.Max), BlockedMicros: micros(c.Blocked),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

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
		Name: p.cfg.Name, State: p.ends.State().String(), Datapath: p.cfg.Datapath, Mode: p.cfg.Mode, Persist: p.persistent(),
		Why: p.why, A: answerEnd(p.ends.A), B: answerEnd(p.ends.B),
	}
	p.carrier.answer(&a)
	before := p.past
	if p.gate != nil {
		n, err := p.gate.Dropped()
		if err != nil {
			a.Trouble = err.Error()
		}
		before.stopped(n)
	}
	before.addTo(&a)
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

// OneLine makes one line of joined errors, with what to do where what failed last can't know it.
func OneLine(err error) string {
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.Is(err, unix.EMFILE) {
		line += " (raise the limit: ulimit -n, or LimitNOFILE= of the unit)"
	}
	return line
}
