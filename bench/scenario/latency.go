package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench"
)

// Throughput runs one trial at maximum rate. What the trial was made for may have any rate.
func Throughput(ctx context.Context, t *bench.Trial, d time.Duration) (bench.TrialResult, error) {
	return t.Pace(d)(ctx, 0)
}

// Rates searches the rates with no loss and with little. The load skips frames that it can't send in time, rather than
// making bursts of them, which would lose frames that the forwarder isn't to blame for: make its Burst some hundred
// microseconds. high is the rate above which nothing is expected.
func Rates(ctx context.Context, t *bench.Trial, high float64, d time.Duration) (ndr, pdr bench.SearchResult, err error) {
	search := bench.Search{Low: min(1000, high), High: high, Loss: bench.PDR}
	if pdr, err = search.Run(ctx, t.Pace(d)); err != nil || pdr.PPS == 0 {
		return ndr, pdr, err
	}
	search.Loss, search.High = bench.NDR, pdr.PPS
	search.Low = min(search.Low, search.High)
	ndr, err = search.Run(ctx, t.Pace(d))
	return ndr, pdr, err
}

// Delays are what is said of a distribution of latencies.
type Delays struct {
	Min, Avg, Max       time.Duration
	P50, P90, P99, P999 time.Duration
	Variation           time.Duration // p99.9 − min: RFC 5481's packet delay variation, at that percentile
}

// DelaysOf reads them from a trial's histogram.
func DelaysOf(h *hdrhistogram.Histogram) Delays {
	at := func(p float64) time.Duration { return time.Duration(h.ValueAtQuantile(p)) }
	d := Delays{
		Min: time.Duration(h.Min()), Avg: time.Duration(h.Mean()), Max: time.Duration(h.Max()),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
	}
	d.Variation = d.P999 - d.Min
	return d
}

// LatencyRow is the latency at one rate.
type LatencyRow struct {
	Part   float64 // of the rate given
	PPS    float64
	Delays Delays
	Trial  bench.TrialResult
}

// Latency measures at parts of a rate, as 0.1, 0.5, 0.9 of the one without loss. The load must not skip
// frames (Burst 0), however late: those are what a stall is seen by.
func Latency(ctx context.Context, t *bench.Trial, rate float64, parts []float64, d time.Duration) (rows []LatencyRow, err error) {
	if t.Gen.Config().Burst != 0 {
		return nil, fmt.Errorf("measure latency: the load skips frames later than %s (make it without Burst)", t.Gen.Config().Burst)
	}
	for _, part := range parts {
		r, err := t.Pace(d)(ctx, part*rate)
		if err != nil {
			return rows, fmt.Errorf("measure latency at %g frames a second: %w", part*rate, err)
		}
		rows = append(rows, LatencyRow{Part: part, PPS: part * rate, Delays: DelaysOf(r.Latency), Trial: r})
	}
	return rows, nil
}
