package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epair-net/epair/bench/load"
)

// LoadCost is what load and sink cost without anything between them but one veth.
type LoadCost struct {
	PPS      float64 // at most: a cell that reaches it shows the load's limit, not its own
	PerFrame float64 // ns of CPU for a frame sent, carried over one veth, and counted
	PerSpin  float64 // ns of CPU for one look at the clock with no frame due
}

// calibration is long enough for ticks of 10 ms to be a percent.
const calibration = time.Second

// Calibrate measures the cost of a load like cfg's over t, which should be a bare veth: once at
// maximum rate, once with nearly nothing to send. It takes some 2.5 s.
func Calibrate(ctx context.Context, t Topology, cfg load.Config) (c LoadCost, err error) {
	fast := cfg
	fast.Rate, fast.Burst = 0, 0
	r, _, err := calibrate(ctx, t, fast)
	if err == nil && r.Delivered == 0 {
		err = errors.New("no frame arrived")
	}
	if err != nil {
		return c, fmt.Errorf("calibrate load: %w", err)
	}
	c.PPS, c.PerFrame = r.PPS, float64(r.CPU)/float64(r.Delivered)
	slow := fast
	slow.Rate = 100 * float64(len(cfg.CPUs))
	r, spins, err := calibrate(ctx, t, slow)
	if err == nil && spins == 0 {
		err = errors.New("generator never waited")
	}
	if err != nil {
		return c, fmt.Errorf("calibrate load: %w", err)
	}
	c.PerSpin = float64(r.CPU) / float64(spins)
	return c, nil
}

func calibrate(ctx context.Context, t Topology, cfg load.Config) (r TrialResult, spins uint64, err error) {
	trial, err := NewTrial(t, cfg)
	if err != nil {
		return r, 0, err
	}
	defer func() { err = errors.Join(err, trial.Close()) }()
	trial.CPUs = cfg.CPUs
	r, err = trial.Run(ctx, calibration)
	return r, trial.spins, err
}

// price fills in what each frame cost. Spinning isn't work: in a paced trial the generator fills its
// CPU whatever is measured, and a forwarder on the same CPU makes it spin less.
func (t *Trial) price(r *TrialResult, sent load.Result, busy time.Duration) {
	t.spins = sent.Spins
	r.CPU = busy
	if len(t.CPUs) == 0 || r.Delivered == 0 {
		return
	}
	own := t.Own.PerFrame*float64(sent.Offered) + t.Own.PerSpin*float64(sent.Spins)
	r.CPUPerFrame = (float64(busy) - own) / float64(r.Delivered)
}
