package compare

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/machine"
	"github.com/epair-net/epair/bench/report"
	"github.com/epair-net/epair/bench/sink"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/internal/cpus"
)

// job is one subject loaded in one way. Its rows are one for each rate.
type job struct {
	subject subject.Subject
	mode    load.Mode
	rows    []int // in the report
	refused bool
	hists   []*hdrhistogram.Histogram // of all rounds, one for each rate
}

// run is a comparison at work.
type run struct {
	Config
	file *report.File
	jobs []job
	own  map[way]bench.LoadCost

	done, total int
	begin       time.Time
}

// Run measures. When ctx ends it returns what was finished, marked as partial, and the context's error. What it
// makes is gone when it returns.
func Run(ctx context.Context, c Config) (*report.File, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	watch, err := machine.NewWatch()
	if err != nil {
		return nil, err
	}
	r := &run{Config: c, own: map[way]bench.LoadCost{}, file: NewFile(&c)}
	r.plan()
	err = r.all(ctx)
	r.file.Partial = err != nil
	r.finish()
	noise, werr := watch.Noise()
	r.file.Run = noise
	return r.file, errors.Join(err, werr)
}

// NewFile begins a report.
func NewFile(c *Config) *report.File {
	return &report.File{
		Schema: report.Schema, Started: time.Now().UTC().Truncate(time.Second), Machine: machine.Read(c.Version), Command: c.Command,
		Settings: report.Settings{
			Scenario: c.Scenario, Rounds: c.Rounds, Seconds: c.Time.Seconds(), Seed: c.Seed,
			CPUs:      report.Placement{Used: cpus.Format(c.Place.Used), Load: cpus.Format(c.Place.Load), Forward: cpus.Format(c.Place.Forward)},
			LoadLimit: map[string]report.LoadCost{},
		},
	}
}

// plan makes the rows.
func (r *run) plan() {
	for i := range r.Subjects {
		s := &r.Subjects[i]
		for _, m := range r.modes(s) {
			j := job{subject: *s, mode: m}
			for _, v := range r.Measure.Variants {
				j.rows = append(j.rows, len(r.file.Rows))
				j.hists = append(j.hists, sink.NewHistogram())
				r.file.Rows = append(r.file.Rows, report.Row{
					Cell: s.Name, Baseline: s.Baseline, Setup: r.Setup, Load: m.String(), Sink: sinkName(r.Sink), Size: r.Size, Flows: r.Flows, IP6: r.IP6,
					Rate: v.Rate, Variant: v.Name, Path: s.Path, Shares: r.Place.shares(s, r.Measure.Sockets),
				})
				if r.Measure.Sockets {
					row := &r.file.Rows[len(r.file.Rows)-1]
					row.Load, row.Sink, row.Size, row.Flows, row.IP6 = "socket", "", 0, 0, 0
				}
			}
			r.jobs = append(r.jobs, j)
		}
	}
	r.total = len(r.jobs) * len(r.Measure.Variants) * r.Rounds
}

func (r *run) all(ctx context.Context) error {
	if err := r.calibrate(ctx); err != nil {
		return err
	}
	r.begin = time.Now()
	for round := 1; round <= r.Rounds; round++ {
		for i := range r.jobs {
			j := &r.jobs[i]
			if j.refused {
				r.done += len(j.rows)
				continue
			}
			if err := r.visit(ctx, j, round); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) progress(round int, what string) {
	if r.Progress == nil {
		return
	}
	p := Progress{Done: r.done, Total: r.total, Round: round, What: what}
	if r.done > 0 {
		p.Left = time.Since(r.begin) * time.Duration(r.total-r.done) / time.Duration(r.done)
	}
	r.Progress(p)
}

// visit makes a job's topology and measures all its rates. Only the context's end is an error; what a
// subject can't do is in its rows.
func (r *run) visit(ctx context.Context, j *job, round int) error {
	r.progress(round, j.subject.Name+" ("+r.file.Rows[j.rows[0]].Load+")")
	err := r.measure(ctx, j, round)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
	case round == 1:
		j.refused = true
		for _, i := range j.rows {
			r.file.Rows[i].Refused, r.file.Rows[i].Rounds = err.Error(), nil
		}
	default:
		for _, i := range j.rows {
			row := &r.file.Rows[i]
			if len(row.Rounds) < round {
				row.Rounds = append(row.Rounds, report.Round{Round: round, Invalid: err.Error()})
			}
		}
	}
	if n := r.done % len(j.rows); n > 0 || err != nil {
		r.done += len(j.rows) - n
	}
	return nil
}

func (r *run) measure(ctx context.Context, j *job, round int) (err error) {
	top, err := j.subject.New(ctx, subject.Options{Setup: r.Setup, Mode: j.mode, CPUs: r.Place.Forward, MTU: r.mtu(), Sockets: r.Measure.Sockets, IP6: r.IP6 > 0})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, top.Close()) }()
	if round == 1 {
		if err := r.describe(j, top); err != nil {
			return err
		}
	}
	v := &Visit{Subject: &j.subject, Mode: j.mode, Round: round, Topology: top, run: r, job: j}
	return r.Measure.Do(ctx, v)
}

// Trial makes one trial and watches the machine meanwhile.
func Trial(ctx context.Context, t *bench.Trial, rate float64, d time.Duration) (x report.Round, res bench.TrialResult, err error) {
	w, err := machine.NewWatch()
	if err != nil {
		return x, res, err
	}
	if res, err = t.Pace(d)(ctx, rate); err != nil {
		return x, res, err
	}
	noise, err := w.Noise()
	if err != nil {
		return x, res, err
	}
	x = roundOf(&res)
	x.Noise = &noise
	return x, res, nil
}

func roundOf(t *bench.TrialResult) report.Round {
	x := report.Round{
		PPS: t.PPS, OfferedPPS: t.OfferedPPS, Gbps: t.Gbps, Offered: t.Offered, Lost: t.Lost, Reordered: t.Reordered,
		Duplicated: t.Duplicated, GapMs: t.LongestGap.Seconds() * 1e3, Invalid: t.Invalid,
	}
	if !math.IsNaN(t.CPUPerFrame) {
		x.CPUNs = &t.CPUPerFrame
	}
	if t.IntendedPPS > 0 {
		x.Latency = report.LatencyOf(t.Latency)
	}
	return x
}

func (r *run) finish() {
	for _, j := range r.jobs {
		for k, i := range j.rows {
			row := &r.file.Rows[i]
			row.Latency, row.Curve = report.LatencyOf(j.hists[k]), report.CurveOf(j.hists[k])
		}
	}
	r.file.Finish()
}
