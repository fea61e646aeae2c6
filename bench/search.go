package bench

import (
	"context"
	"errors"
	"fmt"
)

// Rates that a search looks for are the highest at which no more than a part of the frames is lost: RFC 2544's
// throughput (no-drop rate) and the partial-drop rate.
const (
	NDR = 0.0
	PDR = 0.005
)

// Search says where and how long to look.
type Search struct {
	Loss      float64 // part of the offered frames that may be lost
	Low, High float64 // frames a second: below Low isn't looked, above High nothing is expected
	Precision float64 // part of the rate at which the search ends, 0: DefaultPrecision

	// Attempts is how many trials a rate gets to pass, 0: DefaultAttempts. A shared machine now and then loses frames
	// that have nothing to do with the rate; a rate that is too high loses them each time.
	Attempts int
}

// What is reckoned when a Search doesn't say.
const (
	DefaultPrecision = 0.02
	DefaultAttempts  = 2
)

// Limit is what kept a search from a higher rate.
type Limit string

const (
	LimitLoss Limit = "loss" // what was measured lost too much
	LimitLoad Limit = "load" // the load couldn't offer more: the rate is a lower bound
	LimitHigh Limit = "high" // the search didn't look above High: the rate is a lower bound
)

// SearchResult is the rate that was found, and how.
type SearchResult struct {
	PPS    float64 // 0: even Low lost too much
	Best   TrialResult
	Limit  Limit
	Trials []SearchTrial // all, in the order they were made
}

// SearchTrial is one step.
type SearchTrial struct {
	PPS    float64
	Loss   float64 // part of the offered frames
	Passed bool
	TrialResult
}

// ErrNoRate says that no rate could be tried validly.
var ErrNoRate = errors.New("no valid trial")

// Run halves the range until it is narrow enough. try makes one trial at a rate; Pace does. Invalid trials don't count: a
// rate with none but those lies above what the load can do.
func (s Search) Run(ctx context.Context, try func(ctx context.Context, pps float64) (TrialResult, error)) (SearchResult, error) {
	s.defaults()
	if !(s.Low > 0 && s.High >= s.Low) { // NaN is neither
		return SearchResult{}, fmt.Errorf("search rate: nothing between %g and %g frames a second", s.Low, s.High)
	}
	r := SearchResult{Limit: LimitHigh}
	low, high := s.Low, s.High
	for rate := high; ; rate = (low + high) / 2 {
		limit, err := s.attempt(ctx, rate, &r, try)
		if err != nil {
			return r, fmt.Errorf("search rate: %w", err)
		}
		switch {
		case limit == "" && rate == s.High:
			return r, nil
		case limit == "":
			low = rate
		case rate == s.Low:
			return r, r.none(limit)
		default:
			high, r.Limit = rate, limit
		}
		if high-low <= s.Precision*high {
			if r.PPS > 0 {
				return r, nil
			}
			high = low // Low itself hasn't been tried
		}
	}
}

func (s *Search) defaults() {
	if s.Precision == 0 {
		s.Precision = DefaultPrecision
	}
	if s.Attempts == 0 {
		s.Attempts = DefaultAttempts
	}
}

// none is the end of a search in which Low didn't pass.
func (r *SearchResult) none(limit Limit) error {
	r.Limit = limit
	if limit == LimitLoad {
		return fmt.Errorf("search rate: %w (the load can't even offer the lowest)", ErrNoRate)
	}
	return nil
}

// attempt tries a rate. "" says that it passed, and else the limit why it didn't.
func (s *Search) attempt(ctx context.Context, rate float64, r *SearchResult, try func(context.Context, float64) (TrialResult, error)) (Limit, error) {
	limit := LimitLoad
	for range s.Attempts {
		t, err := try(ctx, rate)
		if err != nil {
			return limit, err
		}
		st := SearchTrial{PPS: rate, TrialResult: t}
		if t.Offered > 0 {
			st.Loss = float64(t.Lost) / float64(t.Offered)
		}
		st.Passed = t.Invalid == "" && t.Offered > 0 && st.Loss <= s.Loss
		r.Trials = append(r.Trials, st)
		if st.Passed {
			r.PPS, r.Best = rate, t
			return "", nil
		}
		if t.Invalid == "" {
			limit = LimitLoss
		}
	}
	return limit, nil
}
