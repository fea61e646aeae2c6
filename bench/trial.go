package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/sink"
)

// TrialResult is what one trial showed: one load, for one time, counted at the far end.
type TrialResult struct {
	Offered, Delivered, Bytes   uint64 // Delivered, and Bytes in it: without duplicates
	Lost, Reordered, Duplicated uint64 // Lost: offered and not delivered
	Seconds                     float64
	IntendedPPS                 float64 // 0 at maximum rate
	OfferedPPS, PPS             float64 // PPS: delivered
	Gbps                        float64 // delivered, check sequences and gaps excluded

	Latency    *hdrhistogram.Histogram // ns from when each frame was due; at maximum rate, of every eighth, from when it was sent
	LongestGap time.Duration           // without an arrival, from the start of the load to its end or the last arrival
	Timeline   []uint64                // arrivals in each sink.SlotTime, from the first

	CPU         time.Duration // in which the used CPUs weren't idle
	Spins       uint64        // load.Result's: what CPU contains without any work being done
	CPUPerFrame float64       // ns for each delivered frame, the load's own excluded; NaN when not asked for
	CPUError    float64       // ns that CPUPerFrame may be off by what is known: ticks, and the reckoning of the load's own

	// Counted is how: as XDP frames, or as socket buffers, which costs more. Results that differ in it aren't comparable.
	Counted load.Mode

	Invalid string // why the trial doesn't count, "" when it does
}

// Trial measures again and again with one load and one sink. It is for one goroutine.
type Trial struct {
	Gen  *load.Gen
	Sink *sink.Sink
	CPUs []int // all that load, forwarder and sink may run on; none: their time isn't measured

	// Own is what the load costs by itself on this machine, at the same rate; without it CPUPerFrame includes the load.
	Own LoadCost

	// Tolerance is the part of the intended frames that a paced load may fail to offer; 0 is DefaultTolerance.
	Tolerance float64
	// Quiet is for how long nothing must arrive, behind the load's end, for the trial to end; 0 is DefaultQuiet. What a forwarder
	// holds back longer is lost.
	Quiet time.Duration

	counted load.Mode
}

// slowest is the part of the intended rate that a valid trial has on average, though it offers all frames in the end.
const slowest = 0.95

// What is reckoned when a Trial doesn't say.
const (
	DefaultTolerance = 0.001
	DefaultQuiet     = 100 * time.Millisecond
)

// NewTrial makes load and sink for a topology. cfg says how to load; where, and the frames' addresses as far
// as they are zero, the topology says.
func NewTrial(topo Topology, cfg load.Config) (t *Trial, err error) {
	to := sink.Config{Flows: cfg.Flows}
	to.NetNS, to.Ifindex = topo.Sink()
	if to.Mode, err = counted(topo, cfg.Mode); err != nil {
		return nil, err
	}
	if w, ok := topo.(Wide); ok {
		cfg.Also, to.Also = w.Also()
	}
	if err := aim(&cfg, topo); err != nil {
		return nil, err
	}
	t = &Trial{counted: to.Mode}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	if t.Sink, err = sink.New(to); err != nil {
		return t, err
	}
	t.Gen, err = load.New(cfg)
	return t, err
}

// Close closes load and sink. It is idempotent.
func (t *Trial) Close() error {
	var errs []error
	if t.Gen != nil {
		errs = append(errs, t.Gen.Close())
	}
	if t.Sink != nil {
		errs = append(errs, t.Sink.Close())
	}
	return errors.Join(errs...)
}

// Run loads for d, waits until nothing comes any more, and returns what did. It blocks for somewhat longer than
// d. When ctx ends it returns early, with what was counted until then and the context's error.
func (t *Trial) Run(ctx context.Context, d time.Duration) (TrialResult, error) {
	t.Sink.Coarse = t.Gen.Config().Rate == 0
	if err := t.Sink.Reset(t.Gen.NextRun()); err != nil {
		return TrialResult{}, err
	}
	before, err := t.busy()
	if err != nil {
		return TrialResult{}, err
	}
	sent, rerr := t.Gen.Run(ctx, d)
	if rerr == nil {
		rerr = t.drain(ctx, sent.Offered)
	}
	after, err := t.busy()
	if err != nil {
		return TrialResult{}, errors.Join(rerr, err)
	}
	came, err := t.Sink.Read()
	if err != nil {
		return TrialResult{}, errors.Join(rerr, err)
	}
	r := result(sent, came)
	r.Counted = t.counted
	t.price(&r, sent, after-before)
	r.Invalid = t.invalid(sent, came)
	return r, rerr
}

// Pace returns what a Search tries: trials of d, each at the rate it is told.
func (t *Trial) Pace(d time.Duration) func(context.Context, float64) (TrialResult, error) {
	return func(ctx context.Context, pps float64) (TrialResult, error) {
		if err := t.Gen.SetRate(pps); err != nil {
			return TrialResult{}, err
		}
		return t.Run(ctx, d)
	}
}

// drain waits until all that was sent has come, or nothing comes any more.
func (t *Trial) drain(ctx context.Context, sent uint64) error {
	quiet := t.Quiet
	if quiet == 0 {
		quiet = DefaultQuiet
	}
	last, since := uint64(0), time.Now()
	for time.Since(since) < quiet {
		n, err := t.Sink.Arrived()
		if err != nil || n >= sent {
			return err
		}
		if n != last {
			last, since = n, time.Now()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// busy is 0 when nobody asks for it.
func (t *Trial) busy() (time.Duration, error) {
	if len(t.CPUs) == 0 {
		return 0, nil
	}
	return BusyTime(t.CPUs)
}

func result(sent load.Result, came sink.Result) TrialResult {
	r := TrialResult{
		Offered: sent.Offered, Delivered: came.Delivered - came.Duplicated, Bytes: came.Bytes,
		Reordered: came.Reordered, Duplicated: came.Duplicated,
		Seconds: sent.Seconds, IntendedPPS: sent.IntendedPPS, OfferedPPS: sent.OfferedPPS,
		Latency: came.Latency, LongestGap: gap(sent, came), Timeline: came.Timeline, CPUPerFrame: math.NaN(),
	}
	r.Lost = r.Offered - min(r.Delivered, r.Offered)
	// What a queue still held when the load ended came later: the time it took counts, or a
	// deep queue would make a forwarder seem faster than it is.
	if span := max(sent.Seconds, (came.Last - came.First).Seconds()); span > 0 {
		r.PPS = float64(r.Delivered) / span
		r.Gbps = float64(r.Bytes) * 8 / span / 1e9
	}
	return r
}

// gap takes the time before the first arrival and behind the last into account.
func gap(sent load.Result, came sink.Result) time.Duration {
	end := sent.Start + time.Duration(sent.Seconds*1e9)
	if came.First == 0 {
		return end - sent.Start
	}
	return max(came.LongestGap, came.First-sent.Start, end-came.Last)
}

// invalid applies the rule for paced loads: one that fell short shows what the load can do, not what was measured.
func (t *Trial) invalid(sent load.Result, came sink.Result) string {
	tolerance := t.Tolerance
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	short := sent.Skipped + sent.Missing
	switch intended := sent.Offered + short; {
	case sent.IntendedPPS > 0 && float64(short) > tolerance*float64(intended):
		return fmt.Sprintf("load fell short: %d of %d frames offered", sent.Offered, intended)
	case sent.IntendedPPS > 0 && sent.OfferedPPS < slowest*sent.IntendedPPS:
		return fmt.Sprintf("load fell behind: it took %.3f s for all frames, %.0f of %.0f a second", sent.Seconds, sent.OfferedPPS, sent.IntendedPPS)
	case came.Stale > 0:
		return fmt.Sprintf("%d frames came too late to be told from duplicates", came.Stale)
	case came.Delivered-came.Duplicated > sent.Offered:
		return fmt.Sprintf("%d frames came of %d sent", came.Delivered-came.Duplicated, sent.Offered)
	}
	return ""
}
