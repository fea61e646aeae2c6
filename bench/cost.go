package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epair-net/epair/bench/load"
)

// LoadCost is what load and sink cost without anything between them but one veth, at one rate.
type LoadCost struct {
	Rate     float64 // the load's, 0: maximum
	PPS      float64 // that arrived: a cell that reaches it at maximum rate shows the load's limit, not its own
	PerFrame float64 // ns of CPU for a frame sent, carried over one veth, and counted
	PerSpin  float64 // ns of CPU for one look at the clock with no frame due
}

// calibration is long enough for ticks of 10 ms to be a percent.
const calibration = time.Second

// Calibrate measures the cost of a load like cfg over t, which should be a bare veth. It takes some 2.5 s.
//
// The rate matters: at maximum rate frames go in batches, and each costs a fraction of one that goes alone.
func Calibrate(ctx context.Context, t Topology, cfg load.Config) (c LoadCost, err error) {
	trial, err := NewTrial(t, cfg)
	if err == nil {
		trial.CPUs = cfg.CPUs
		c, err = trial.calibrate(ctx, cfg.Rate)
		err = errors.Join(err, trial.Close())
	}
	if err != nil {
		return c, fmt.Errorf("calibrate load: %w", err)
	}
	return c, nil
}

// idleRate is next to nothing for a generator.
const idleRate = 100

func (t *Trial) calibrate(ctx context.Context, rate float64) (c LoadCost, err error) {
	try := t.Pace(calibration)
	idle, err := try(ctx, idleRate*float64(len(t.CPUs)))
	if err != nil {
		return c, err
	}
	if idle.Spins == 0 {
		return c, errors.New("generator never waited")
	}
	r, err := try(ctx, rate)
	if err != nil {
		return c, err
	}
	if r.Delivered == 0 {
		return c, errors.New("no frame arrived")
	}
	c = LoadCost{Rate: rate, PPS: r.PPS, PerSpin: float64(idle.CPU) / float64(idle.Spins)}
	c.PerFrame = (float64(r.CPU) - c.PerSpin*float64(r.Spins)) / float64(r.Offered)
	return c, nil
}

// ownError is the part by which what the load costs differs from one run to the next, on a quiet machine.
const ownError = 0.02

// price fills in what each frame cost. Spinning isn't work: in a paced trial the generator fills its
// CPU whatever is measured, and a forwarder on the same CPU makes it spin less.
func (t *Trial) price(r *TrialResult, sent load.Result, busy time.Duration) {
	r.CPU, r.Spins = busy, sent.Spins
	if len(t.CPUs) == 0 || r.Delivered == 0 {
		return
	}
	own := t.Own.PerFrame*float64(sent.Offered) + t.Own.PerSpin*float64(sent.Spins)
	r.CPUPerFrame = (float64(busy) - own) / float64(r.Delivered)
	r.CPUError = (float64(tick)*float64(len(t.CPUs)) + ownError*own) / float64(r.Delivered)
}
