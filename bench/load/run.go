package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lead     = 2 * time.Millisecond // between an order and the first frame
	patience = time.Minute          // for generators to come up: some 20 ms, but XDP programs that come and go anywhere on the machine hold it up
	poll     = time.Millisecond
	minGrace = 500 * time.Millisecond // for late frames, behind the end of a run
	never    = math.MaxUint64
	fraction = 20 // bits of a period behind the nanosecond

	// How many frames go between two looks at the scheduler, and leave together: many when only the
	// rate counts, few when a frame that is ready shouldn't wait for others that aren't due.
	batchMax, batchPaced = 64, 16
)

// ErrClosed is what Run returns after Close.
var ErrClosed = errors.New("load is closed")

// NextRun returns the number that the next run's frames carry.
func (g *Gen) NextRun() uint16 { return g.run + 1 }

// Run sends for d and returns what was sent. It blocks; when ctx ends, it stops at once and
// returns what was sent until then, beside the context's error.
func (g *Gen) Run(ctx context.Context, d time.Duration) (Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return Result{}, ErrClosed
	}
	if d <= 0 || d > time.Hour {
		return Result{}, fmt.Errorf("run load for %s: outside 0 to 1h", d)
	}
	g.run++
	t, err := g.start(ctx)
	if err == nil {
		err = t.conduct(ctx, d)
	}
	result, serr := t.stop()
	if err = errors.Join(err, serr); err != nil {
		return result, fmt.Errorf("run load: %w", err)
	}
	return result, nil
}

// turn is one run under way.
type turn struct {
	g       *Gen
	threads []*thread
	begin   uint64 // when the first frame is due
	end     uint64
	ended   uint64 // when sending ended: end, unless it was stopped before
}

// start brings the generators up, with nothing due.
func (g *Gen) start(ctx context.Context) (*turn, error) {
	t := &turn{g: g}
	for _, c := range g.cpus {
		if err := c.reset(); err != nil {
			return t, err
		}
	}
	for _, c := range g.cpus {
		t.threads = append(t.threads, spin(c, g.ns, g.cfg.Rate > 0))
	}
	for limit := time.Now().Add(patience); ; time.Sleep(poll) {
		up, err := t.up()
		if up || err != nil {
			return t, err
		}
		if ctx.Err() != nil {
			return t, context.Cause(ctx)
		}
		if time.Now().After(limit) {
			return t, fmt.Errorf("generators didn't start in %s (are their CPUs free?)", patience)
		}
	}
}

// up says whether every generator runs.
func (t *turn) up() (bool, error) {
	for _, th := range t.threads {
		select {
		case err := <-th.done:
			th.done <- err
			return false, errors.Join(err, errors.New("generator ended"))
		default:
		}
		s, err := th.c.engine.state()
		if err != nil || s.Turns == 0 {
			return false, err
		}
	}
	return true, nil
}

// conduct orders the frames and waits until they are sent or ctx ends.
func (t *turn) conduct(ctx context.Context, d time.Duration) error {
	t.begin = now() + uint64(lead)
	t.end = t.begin + uint64(d)
	t.ended = t.end
	grace := max(d/10, minGrace)
	for _, c := range t.g.cpus {
		o := c.order(t.g.run, t.g.cfg.Burst)
		o.End, o.Limit = t.end, t.end+uint64(grace)
		if err := c.give(o, t.begin); err != nil {
			return err
		}
	}
	if t.g.OnStart != nil {
		t.g.OnStart()
	}
	wait := time.Duration(t.end - min(now(), t.end))
	for limit := time.Now().Add(wait + grace); ; wait = poll {
		select {
		case <-ctx.Done():
			t.ended = min(now(), t.end)
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		done, err := t.finished()
		if done || err != nil || time.Now().After(limit) {
			return err
		}
	}
}

// finished says whether every generator has nothing left to send.
func (t *turn) finished() (bool, error) {
	for _, th := range t.threads {
		s, err := th.c.engine.state()
		if err != nil || s.Finished == 0 {
			return false, err
		}
	}
	return true, nil
}

// stop ends the generators' calls and adds up what they did.
func (t *turn) stop() (r Result, err error) {
	var errs []error
	for _, th := range t.threads {
		errs = append(errs, th.c.give(genGenOrder{}, never))
	}
	for _, th := range t.threads {
		errs = append(errs, th.stop())
	}
	if t.begin == 0 {
		return r, errors.Join(errs...)
	}
	ordered, took := t.ended-min(t.begin, t.ended), uint64(0)
	for _, c := range t.g.cpus {
		s, err := c.engine.state()
		errs = append(errs, err)
		r.add(s, c.intended(time.Duration(ordered)))
		took = max(took, s.Last-min(t.begin, s.Last))
	}
	r.Start, r.Seconds = time.Duration(t.begin), time.Duration(max(ordered, took)).Seconds()
	if r.Seconds > 0 {
		r.OfferedPPS = float64(r.Offered) / r.Seconds
	}
	if t.g.cfg.Rate > 0 && ordered > 0 {
		r.IntendedPPS = float64(r.Offered+r.Skipped+r.Missing) / time.Duration(ordered).Seconds()
	}
	return r, errors.Join(errs...)
}

func (r *Result) add(s genGenState, intended uint64) {
	r.Offered += s.Offered
	r.Bytes += s.Bytes
	r.Skipped += s.Skipped
	r.Spins += s.Spins
	r.MaxLate = max(r.MaxLate, time.Duration(s.MaxLate))
	r.Missing += intended - min(s.Due, intended)
}

// now reads the clock that the program reads.
func now() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock exists and ts is valid: it can't fail
	}
	return uint64(ts.Nano())
}
