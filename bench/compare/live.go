package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/epair-net/epair/bench/cell"
	"github.com/epair-net/epair/bench/report"
	"github.com/epair-net/epair/bench/scenario"
	"github.com/epair-net/epair/bench/sink"
	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

// Switching says how a pair's settings change under load.
type Switching struct {
	Rate  float64
	Every time.Duration
	Modes []string // one after the other, and again
	Table []string // specifications of tables; none: they stay
}

// variants are what is changed.
func (s Switching) variants() (list []switchKind) {
	if len(s.Modes) > 0 {
		list = append(list, switchKind{"modes " + strings.Join(s.Modes, ", "), s.Modes, func(d cell.Daemon, to string) error {
			_, err := d.Set(d.Pairs()[0].Name, control.PairChange{Mode: to})
			return err
		}})
	}
	if len(s.Table) > 0 {
		list = append(list, switchKind{"tables " + strings.Join(s.Table, ", "), s.Table, func(d cell.Daemon, to string) error {
			_, err := d.SetRSS(control.RSSChange{Table: &to})
			return err
		}})
	}
	return list
}

type switchKind struct {
	name   string
	values []string
	set    func(d cell.Daemon, to string) error
}

// Switch measures what live changes cost the frames that cross meanwhile.
func Switch(s Switching) Measure {
	kinds := s.variants()
	m := Measure{Do: func(ctx context.Context, v *Visit) (err error) {
		d, ok := v.Topology.Info().Closer.(cell.Daemon)
		if !ok {
			return errors.New("nothing of it can be changed")
		}
		t, err := v.Trial(ctx, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		t.Own = v.run.own[way{v.Mode, s.Rate}]
		for k, kind := range kinds {
			r, err := scenario.Switch{Rate: s.Rate, Every: s.Every, Change: func(_ context.Context, i int) error {
				return kind.set(d, kind.values[i%len(kind.values)])
			}}.Run(ctx, t, v.run.Time)
			if err != nil {
				return err
			}
			v.switched(k, kind, &r)
		}
		return nil
	}}
	for _, k := range kinds {
		m.Variants = append(m.Variants, Variant{Name: k.name, Rate: s.Rate})
	}
	return m
}

// switched notes a round, and the timeline of the last one.
func (v *Visit) switched(k int, kind switchKind, r *scenario.SwitchResult) {
	x := roundOf(&r.Trial)
	longest := time.Duration(0)
	line := &report.Switch{SlotMs: sink.SlotTime.Seconds() * 1e3, Frames: r.Trial.Timeline}
	for i, c := range r.Changes {
		longest = max(longest, c.Took)
		line.Events = append(line.Events, report.SwitchEvent{
			AtMs: c.At.Seconds() * 1e3, TookMs: c.Took.Seconds() * 1e3, What: kind.values[i%len(kind.values)],
		})
	}
	x.Values = map[string]float64{
		"changes": float64(len(r.Changes)), "blocked ms": r.Blocked.Seconds() * 1e3,
		"longest gap ms": x.GapMs, "longest change ms": longest.Seconds() * 1e3,
	}
	v.Row(k).Switch = line
	v.Add(k, x, r.Trial.Latency)
}

// Pairs measures what many pairs cost: n of them beside the one that is loaded.
func Pairs(n ...int) Measure {
	m := Measure{Do: func(ctx context.Context, v *Visit) error {
		d, ok := v.Topology.Info().Closer.(cell.Daemon)
		if !ok {
			return errors.New("only epair makes pairs")
		}
		for k, count := range n {
			if err := v.pairs(ctx, d, k, count); err != nil {
				return err
			}
		}
		return nil
	}}
	for _, c := range n {
		m.Variants = append(m.Variants, Variant{Name: "with " + count(c, "more pair")})
	}
	return m
}

func (v *Visit) pairs(ctx context.Context, d cell.Daemon, k, n int) error {
	var x report.Round
	r, err := scenario.Pairs(ctx, &fleet{d: d}, n, os.Getpid(), func(ctx context.Context) (err error) {
		t, err := v.Trial(ctx, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		t.Own = v.run.own[way{v.Mode, 0}]
		x, _, err = Trial(ctx, t, 0, v.run.Time)
		return err
	})
	if err != nil {
		return err
	}
	x.Values = map[string]float64{
		"created/s": r.CreateRate(), "removed/s": r.RemoveRate(), "threads": float64(r.Threads),
		"process MiB": float64(r.Resident) / (1 << 20), "kernel MiB": float64(r.Kernel) / (1 << 20),
	}
	v.Add(k, x, nil)
	return nil
}

// fleet makes pairs like the daemon's first, in the same namespaces.
type fleet struct {
	d     cell.Daemon
	names []string
}

func (f *fleet) Add(ctx context.Context, i int) error {
	cfg := f.d.First
	cfg.Name = fmt.Sprintf("more%d", i)
	cfg.A.Name, cfg.B.Name = fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
	if _, err := f.d.Add(ctx, []epair.PairConfig{cfg}); err != nil {
		return err
	}
	f.names = append(f.names, cfg.Name)
	return nil
}

func (f *fleet) RemoveAll(context.Context) error {
	if len(f.names) == 0 {
		return nil
	}
	err := f.d.Remove(f.names)
	f.names = nil
	return err
}
