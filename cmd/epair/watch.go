package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/control"
)

// watch prints rates again and again, until ctx ends or, if n isn't 0, n times. JSON is one line each time.
func (e *env) watch(ctx context.Context, name string, interval time.Duration, n int) error {
	c := e.client()
	defer c.Close()
	before, err := e.look(ctx, c)
	if err == nil {
		err = only(&before.Stat, name)
	}
	if err != nil {
		return err
	}
	for i := 0; n == 0 || i < n; i++ {
		if !pause(ctx, interval) {
			return nil // the user has seen enough
		}
		now, err := e.look(ctx, c)
		if err == nil {
			err = only(&now.Stat, name)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := e.printRates(between(before, now), now.at); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// pause waits; it returns false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// only keeps the pair of that name in s; an empty name keeps all.
func only(s *control.Stat, name string) error {
	if name == "" {
		return nil
	}
	s.Pairs = slices.DeleteFunc(s.Pairs, func(p control.Pair) bool { return p.Name != name })
	if len(s.Pairs) == 0 {
		return fmt.Errorf("stat: pair %s: no such pair (see 'epair list')", name)
	}
	return nil
}

func (e *env) printRates(r rates, at time.Time) error {
	if e.json {
		return e.printLine(r)
	}
	fmt.Fprintf(e.out, "%s, over %.1f s\n", at.Format(time.TimeOnly), r.Interval)
	t := e.table("PAIR", "DIR", "STATE", "MODE", "RX/s", "TX/s", "bit/s", "DROPS/s", "QUEUED", "FRAMES/BATCH")
	for _, p := range r.Pairs {
		for i, d := range []dirRate{p.AB, p.BA} {
			t.row(p.Name, []string{"a→b", "b→a"}[i], p.State, p.Datapath+"/"+p.Mode, si(d.Rx), si(d.Tx), si(d.TxBits), si(d.Drops),
				d.Queued, fmt.Sprintf("%.1f", d.perBatch()))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(e.out)
	t = e.table("WORKER", "CPU", "BUSY", "WAITED FOR CPU", "FRAMES/s", "QUEUE MAX", "WAIT P99", "TURNS/s", "EMPTY/s", "SLEEPS/s", "PAIR")
	for _, w := range r.Workers {
		t.row(w.Name, w.CPU, percent(w.Busy), percent(w.Wait), si(w.Frames), w.Queue, micros(w.P99), si(w.Turns), si(w.Empty), si(w.Sleeps), w.Pair)
	}
	err := t.Flush()
	fmt.Fprintln(e.out)
	return err
}

// perBatch is how many frames were moved per turn in which there were any.
func (d *dirRate) perBatch() float64 {
	if d.Batches == 0 {
		return 0
	}
	return d.Rx / d.Batches
}

func percent(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }

// si prints a number in four digits at most, with the prefix of its size.
func si(v float64) string {
	for _, p := range []string{"", "k", "M", "G"} {
		switch {
		case v < 9.995 && v != float64(int(v)):
			return fmt.Sprintf("%.2f%s", v, p)
		case v < 99.95 && v != float64(int(v)):
			return fmt.Sprintf("%.1f%s", v, p)
		case v < 999.5:
			return fmt.Sprintf("%.0f%s", v, p)
		}
		v /= 1000
	}
	return fmt.Sprintf("%.0fT", v)
}
