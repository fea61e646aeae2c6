package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/rss"
)

// loadTime is how long Load measures: as long as a rebalancing does.
const loadTime = 200 * time.Millisecond

// Load measures the load of each bucket.
func (d *Daemon) Load() (Loads, error) {
	l, err := d.pool.Measure(loadTime)
	if err != nil {
		return Loads{}, err
	}
	a := Loads{Buckets: orEmpty(l.Buckets), Frames: l.Frames, Seconds: l.Over.Seconds(), Spread: rss.Spread{Loads: []uint64{}}}
	if len(l.Buckets) > 0 {
		if a.Spread, err = rss.SpreadOf(l.Steering.Table(), l.Buckets); err != nil {
			return Loads{}, fmt.Errorf("measure loads: %w", err)
		}
	}
	return a, nil
}

// Rebalance moves buckets from busy workers to others, by the load that it measures, if it's worth it.
func (d *Daemon) Rebalance(want Rebalancing) (a Rebalanced, err error) {
	if err := d.begin(); err != nil {
		return a, fmt.Errorf("rebalance: %w", err)
	}
	defer d.life.RUnlock()
	d.policy.Lock()
	defer d.policy.Unlock()
	r, err := d.pool.Rebalance(true)
	if err == nil && r.Worth && !want.DryRun {
		r.Change, err = d.setAll(fanout.NewSteering(d.steer.Hasher(), r.Table))
		r.Done = err == nil
	}
	if err != nil {
		return a, err
	}
	r.Before.Loads, r.After.Loads = orEmpty(r.Before.Loads), orEmpty(r.After.Loads)
	return Rebalanced{
		Done: r.Done, Worth: r.Worth, Verdict: r.Verdict, Frames: r.Measured.Frames, Seconds: r.Measured.Over.Seconds(),
		Moves: orEmpty(r.Moves), Before: r.Before, After: r.After, Heavy: orEmpty(r.Heavy),
		Elephants: orEmpty(answerElephants(r.Elephants)), Change: answerChange(r.Change),
	}, nil
}

// orEmpty makes JSON say [] instead of null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func answerElephants(found []fanout.Elephant) []Elephant {
	var all []Elephant
	for _, f := range found {
		all = append(all, Elephant{
			Pair: f.Pair, Direction: f.Way, Flow: f.Flow, Share: f.Share, Hash: fmt.Sprintf("%08x", f.Hash), Bucket: f.Bucket, Worker: f.Worker,
		})
	}
	return all
}

// elephants returns those of one pair.
func (d *Daemon) elephants(pair string) ([]Elephant, error) {
	found, err := d.pool.Elephants()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(answerElephants(found), func(e Elephant) bool { return e.Pair != pair }), nil
}
