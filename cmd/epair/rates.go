package main

import (
	"context"
	"time"

	"github.com/epair-net/epair/control"
)

// rates is what happened between two looks at the counters.
type rates struct {
	Interval float64      `json:"interval_s"`
	Pairs    []pairRate   `json:"pairs"`
	Workers  []workerRate `json:"workers"`
}

// pairRate is one pair's part.
type pairRate struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Datapath string  `json:"datapath"`
	Mode     string  `json:"mode"`
	AB       dirRate `json:"ab"`
	BA       dirRate `json:"ba"`
}

// dirRate is one direction's.
type dirRate struct {
	Rx      float64 `json:"rx_per_s"`
	Tx      float64 `json:"tx_per_s"`
	TxBits  float64 `json:"tx_bits_per_s"`
	Drops   float64 `json:"drops_per_s"`
	Queued  uint64  `json:"queued"`
	Batches float64 `json:"batches_per_s"`
}

// workerRate is how a worker spent the time; Busy and Wait are parts of 1.
type workerRate struct {
	Name   string  `json:"name"`
	CPU    int     `json:"cpu"`
	Pair   string  `json:"pair,omitempty"`
	Busy   float64 `json:"busy"`
	Wait   float64 `json:"wait"`
	Frames float64 `json:"frames_per_s"`
	Queue  int     `json:"queue_max"`
	P99    float64 `json:"sojourn_p99_us"`
	Turns  float64 `json:"turns_per_s"`
	Empty  float64 `json:"empty_turns_per_s"`
	Sleeps float64 `json:"sleeps_per_s"`
	Wakes  float64 `json:"wakes_per_s"`
}

// sample is the counters at a moment.
type sample struct {
	control.Stat
	at time.Time
}

// look reads the counters.
func (e *env) look(ctx context.Context, c *control.Client) (sample, error) {
	s, err := c.Stat(ctx)
	return sample{s, time.Now()}, err
}

// between returns the rates of now against before. What wasn't there before counts from 0.
func between(before, now sample) rates {
	secs := now.at.Sub(before.at).Seconds()
	r := rates{Interval: secs, Pairs: []pairRate{}, Workers: []workerRate{}}
	old := map[string]*control.Pair{}
	for i := range before.Pairs {
		old[before.Pairs[i].Name] = &before.Pairs[i]
	}
	for i := range now.Pairs {
		p := &now.Pairs[i]
		o := old[p.Name]
		if o == nil {
			o = &control.Pair{}
		}
		r.Pairs = append(r.Pairs, pairRate{
			Name: p.Name, State: p.State, Datapath: p.Datapath, Mode: p.Mode,
			AB: dirBetween(&o.AB, &p.AB, secs), BA: dirBetween(&o.BA, &p.BA, secs),
		})
	}
	threads := map[int]*control.Worker{}
	for i := range before.Workers {
		threads[before.Workers[i].TID] = &before.Workers[i]
	}
	for i := range now.Workers {
		w := &now.Workers[i]
		o := threads[w.TID]
		if o == nil {
			o = &control.Worker{}
		}
		r.Workers = append(r.Workers, workerRate{
			Name: w.Name, CPU: w.CPU, Pair: w.Pair,
			Busy: per(o.CPUNanos, w.CPUNanos, secs*1e9), Wait: per(o.WaitNanos, w.WaitNanos, secs*1e9),
			Frames: per(o.Frames, w.Frames, secs), Queue: w.QueueMax, P99: w.SojournP99Micros,
			Turns: per(o.Turns, w.Turns, secs), Empty: per(o.Empty, w.Empty, secs),
			Sleeps: per(o.Sleeps, w.Sleeps, secs), Wakes: per(o.Wakes, w.Wakes, secs),
		})
	}
	return r
}

func dirBetween(o, n *control.Direction, secs float64) dirRate {
	return dirRate{
		Rx: per(o.Rx, n.Rx, secs), Tx: per(o.Tx, n.Tx, secs), TxBits: 8 * per(o.TxBytes, n.TxBytes, secs),
		Drops: per(sum(o.Drops), sum(n.Drops), secs), Queued: n.Queued, Batches: per(batches(o), batches(n), secs),
	}
}

// per is what a counter grew by in each unit of time. One that is lower than before began anew: another pair
// has the name.
func per(before, now uint64, units float64) float64 {
	if now < before {
		before = 0
	}
	if units <= 0 {
		return 0
	}
	return float64(now-before) / units
}

func sum(drops map[string]uint64) (n uint64) {
	for _, v := range drops {
		n += v
	}
	return n
}

func batches(d *control.Direction) (n uint64) {
	for i := range d.Workers {
		n += d.Workers[i].Batches
	}
	return n
}
