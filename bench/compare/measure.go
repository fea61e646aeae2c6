package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/report"
	"github.com/epair-net/epair/bench/subject"
)

// Measure is what is done with each subject in each round.
type Measure struct {
	Variants []Variant // of each subject; each gets a row
	Sockets  bool      // sockets send, not the load
	// Check, if set, says why it can't be done on some CPUs.
	Check func(Place) error
	// Do measures all variants and gives each round to Visit.Add. An error in the first round means that the subject
	// can't be measured so.
	Do func(ctx context.Context, v *Visit) error
}

// Variant is what tells the rows of one subject apart.
type Variant struct {
	Name string
	Rate float64 // intended, frames a second; 0: none
}

// Visit is one subject, made and ready, in one round.
type Visit struct {
	Subject  *subject.Subject
	Mode     load.Mode
	Round    int
	Topology subject.Topology
	run      *run
	job      *job
}

// Config is that of the run.
func (v *Visit) Config() *Config { return &v.run.Config }

// Row is that of the k-th variant.
func (v *Visit) Row(k int) *report.Row { return &v.run.file.Rows[v.job.rows[k]] }

// Add takes what the k-th variant showed. h, which may be nil, is a distribution in ns.
func (v *Visit) Add(k int, x report.Round, h *hdrhistogram.Histogram) {
	x.Round = v.Round
	row := v.Row(k)
	row.Rounds = append(row.Rounds, x)
	if h != nil && x.Invalid == "" {
		v.job.hists[k].Merge(h)
	}
	v.run.done++
	v.run.progress(v.Round, v.Subject.Name+" ("+row.Load+")")
}

// warmUp comes before the first trial of a topology: caches, pages, and whatever a first frame sets up.
const warmUp = 50 * time.Millisecond

// Trial makes load and sink for the subject, warmed up. burst is load.Config's.
func (v *Visit) Trial(ctx context.Context, burst time.Duration) (*bench.Trial, error) {
	cfg := v.run.load(v.Mode)
	cfg.Burst = burst
	t, err := newTrial(v.Topology, cfg, v.run.Sink)
	if err != nil {
		return nil, err
	}
	t.CPUs = v.run.Place.Used
	if err := warm(ctx, t); err != nil {
		if v.Mode == load.Skb && v.run.Sink == load.Frame && errors.Is(err, errNothing) {
			err = fmt.Errorf("%w at XDP: it hands socket buffers over behind that hook (use --sink tcx)", err)
		}
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// errNothing says that the sink saw nothing.
var errNothing = errors.New("none came out")

// warm sends until something has come. On a busy machine the load may not even have begun when its time is over.
func warm(ctx context.Context, t *bench.Trial) error {
	for tries := 1; ; tries++ {
		r, err := t.Pace(time.Duration(tries)*warmUp)(ctx, 0)
		switch {
		case err != nil || r.Delivered > 0:
			return err
		case tries == 8:
			return fmt.Errorf("%d frames went in and %w", r.Offered, errNothing)
		}
	}
}

// Rates measures at rates in frames a second; 0 is as fast as it goes.
func Rates(rates ...float64) Measure {
	m := Measure{Do: func(ctx context.Context, v *Visit) (err error) {
		t, err := v.Trial(ctx, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		for k, rate := range rates {
			t.Own = v.run.own[way{v.Mode, rate}]
			x, res, err := Trial(ctx, t, rate, v.run.Time)
			if err != nil {
				return err
			}
			if rate == 0 {
				res.Latency = nil // it is how long the queues are
			}
			v.Add(k, x, res.Latency)
		}
		return nil
	}}
	for _, r := range rates {
		m.Variants = append(m.Variants, Variant{Rate: r})
	}
	return m
}
