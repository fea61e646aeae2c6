package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/report"
)

// skipAfter is how late a frame of a search may be sent: bursts would lose frames that the forwarder isn't to
// blame for.
const skipAfter = 300 * time.Microsecond

// lowest is the rate below which a search doesn't look, in frames a second.
const lowest = 1000

// Search measures the greatest rate at which no more than a part of the frames is lost.
func Search(name string, loss float64) Measure {
	return Measure{Variants: []Variant{{Name: name}}, Do: func(ctx context.Context, v *Visit) error {
		r, err := v.search(ctx, loss)
		if err != nil {
			return err
		}
		x := roundOf(&r.Best)
		x.PPS, x.Latency, x.CPUNs = r.PPS, nil, nil // what the load costs at this rate wasn't measured
		x.Values = map[string]float64{"trials": float64(len(r.Trials))}
		switch {
		case r.PPS == 0:
			x.Invalid = fmt.Sprintf("even %d frames/s lost more", lowest)
		case r.Limit != bench.LimitLoss:
			v.note("the load, not the cell, kept the search from a higher rate: it is a lower bound")
		}
		v.Add(0, x, nil)
		return nil
	}}
}

// note adds to what is to be known of a row, once.
func (v *Visit) note(text string) {
	row := v.Row(0)
	for _, w := range row.Why {
		if w == text {
			return
		}
	}
	row.Why = append(row.Why, text)
}

func (v *Visit) search(ctx context.Context, loss float64) (r bench.SearchResult, err error) {
	t, err := v.Trial(ctx, skipAfter)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	high := max(2*lowest, v.run.own[way{v.Mode, 0}].PPS)
	pace := t.Pace(v.run.Time)
	return bench.Search{Low: lowest, High: high, Loss: loss}.Run(ctx, func(ctx context.Context, pps float64) (bench.TrialResult, error) {
		v.run.progress(v.Round, fmt.Sprintf("%s (%s), trying %s frames/s", v.Subject.Name, v.Mode, report.Rate(pps)))
		return pace(ctx, pps)
	})
}

// parts of the rate without loss at which latency is measured unless the user names rates.
var parts = [...]float64{0.1, 0.5, 0.9}

// Latency measures at parts of each subject's own rate without loss, which it looks for first.
func Latency() Measure {
	m := Measure{Do: func(ctx context.Context, v *Visit) (err error) {
		r, err := v.search(ctx, bench.NDR)
		if err == nil && r.PPS == 0 {
			err = fmt.Errorf("even %d frames/s lost some (name rates with --rate)", lowest)
		}
		if err != nil {
			return err
		}
		t, err := v.Trial(ctx, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		for k, part := range parts {
			x, res, err := Trial(ctx, t, part*r.PPS, v.run.Time)
			if err != nil {
				return err
			}
			x.CPUNs = nil // what the load costs at this rate wasn't measured
			x.Values = map[string]float64{"intended k frames/s": part * r.PPS / 1e3}
			v.Add(k, x, res.Latency)
		}
		return nil
	}}
	for _, p := range parts {
		m.Variants = append(m.Variants, Variant{Name: fmt.Sprintf("%.0f %% of the rate without loss", 100*p)})
	}
	return m
}
