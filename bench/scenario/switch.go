package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/epair-net/epair/bench"
)

// Switch is a series of live changes under load.
type Switch struct {
	Rate  float64       // frames a second
	Every time.Duration // from the start of one change to that of the next, or as soon as it has ended
	// Change makes the i-th change, from 0, and returns when it is in force.
	Change func(ctx context.Context, i int) error
}

// Change is one that was made.
type Change struct {
	At   time.Duration // since the load's start
	Took time.Duration
}

// SwitchResult says what the changes cost.
type SwitchResult struct {
	Trial   bench.TrialResult
	Changes []Change
	// Blocked is for how long nothing passed, if all lost frames are what came in that time: lost ÷ offered rate.
	Blocked time.Duration
}

// quietEnd is the part of the time, at its end, in which no change begins: the last one's traces must be seen.
const quietEnd = 0.1

// Run loads for d and makes the changes meanwhile. A change that fails ends the run. One that is on its way at the load's end is waited for.
func (s Switch) Run(ctx context.Context, t *bench.Trial, d time.Duration) (r SwitchResult, err error) {
	if s.Every <= 0 || s.Rate <= 0 {
		return r, fmt.Errorf("switch under load: every %s at %g frames a second", s.Every, s.Rate)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started, changed := make(chan time.Time, 1), make(chan []Change, 1)
	t.Gen.OnStart = func() { started <- time.Now() }
	defer func() { t.Gen.OnStart = nil }()
	go func() {
		list, err := s.changes(ctx, started, d)
		if err != nil {
			cancel(err)
		}
		changed <- list
	}()
	r.Trial, err = t.Pace(d)(ctx, s.Rate)
	if err != nil {
		cancel(err) // no change is made without load
	}
	r.Changes = <-changed
	if r.Trial.OfferedPPS > 0 {
		r.Blocked = time.Duration(float64(r.Trial.Lost) / r.Trial.OfferedPPS * 1e9)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return r, fmt.Errorf("switch under load: %w", err)
	}
	return r, nil
}

// changes makes them from the load's start.
func (s Switch) changes(ctx context.Context, started <-chan time.Time, d time.Duration) (list []Change, err error) {
	var start time.Time
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case start = <-started:
	}
	last := start.Add(d - time.Duration(quietEnd*float64(d)))
	for i := 0; ; i++ {
		next := start.Add(time.Duration(i+1) * s.Every)
		if next.After(last) || time.Now().After(last) {
			return list, nil
		}
		if err := sleepUntil(ctx, next); err != nil {
			return list, err
		}
		begin := time.Now()
		if err := s.Change(ctx, i); err != nil {
			return list, fmt.Errorf("change %d: %w", i, err)
		}
		list = append(list, Change{At: begin.Sub(start), Took: time.Since(begin)})
	}
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(at)):
		return nil
	}
}
