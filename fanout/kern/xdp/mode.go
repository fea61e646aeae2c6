package xdp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
)

// patience is how long a change of mode may take.
const patience = 5 * time.Second

// SetMode goes from mode to mode by way of inline:
//
//	inline → pool    all frames pass the fence, at first to here; when those that didn't are out, the table counts
//	pool → inline    all buckets go to here; when they are, frames need not pass the fence
//	inline ↔ poller  the NAPIs stay what they are, so frames do in order. Where an inner side has several rings,
//	                 one per CPU, they don't: all frames are dropped until those before are out
func (x *crossing) SetMode(m kern.Mode) (c kern.Change, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return c, fmt.Errorf("set mode of %s: %w", x.name, os.ErrClosed)
	}
	start := time.Now()
	before, err := x.blocked()
	if err == nil {
		err = x.change(m)
	}
	after, berr := x.blocked()
	if err = errors.Join(err, berr); err != nil {
		return c, fmt.Errorf("set mode of %s: %w", x.name, err)
	}
	return kern.Change{Blocked: after - before, Micros: time.Since(start).Microseconds()}, nil
}

// blocked counts frames that were dropped for order's sake.
func (x *crossing) blocked() (n uint64, err error) {
	for dir := range 2 {
		c, err := x.counts.Read(dir)
		if err != nil {
			return 0, err
		}
		n += c.Drops["fence"]
	}
	return n, nil
}

func (x *crossing) change(m kern.Mode) error {
	if m != kern.Inline && m != kern.Pool && m != kern.Poller {
		return fmt.Errorf("%w: there is no mode %q (use inline, pool or poller)", kern.ErrRefused, m)
	}
	old := x.mode
	if m == old {
		return nil
	}
	if err := x.leave(); err != nil {
		return err
	}
	err := x.enter(m)
	if err != nil && old != kern.Inline {
		err = errors.Join(err, x.enter(old))
	}
	return err
}

// leave goes from a mode to inline. After an error the mode holds.
func (x *crossing) leave() (err error) {
	switch x.mode {
	case kern.Pool:
		err = x.leavePool()
	case kern.Poller:
		err = x.behindShutGate(x.stopThreads)
	}
	if err == nil {
		x.mode = kern.Inline
	}
	return err
}

// enter goes from inline to a mode. After an error it's inline.
func (x *crossing) enter(m kern.Mode) (err error) {
	switch m {
	case kern.Pool:
		err = x.enterPool()
	case kern.Poller:
		err = x.behindShutGate(x.startThreads)
	}
	if err == nil {
		x.mode = m
	}
	return err
}

func (x *crossing) enterPool() error {
	if err := x.shared.startWorkers(); err != nil {
		return err
	}
	err := x.set("epair_spread", uint32(0))
	if err == nil {
		err = x.set("epair_gate", uint32(hash))
	}
	if err == nil {
		err = x.drain() // of frames that the fence hasn't counted
	}
	if err != nil {
		return errors.Join(err, x.set("epair_gate", uint32(open)))
	}
	return x.set("epair_spread", uint32(1))
}

func (x *crossing) leavePool() error {
	if err := x.set("epair_spread", uint32(0)); err != nil {
		return err
	}
	// After it, no program runs that takes a bucket elsewhere.
	err := x.shared.wait()
	for deadline := time.Now().Add(patience); err == nil; {
		var n int
		if n, err = x.fence.Moving(x.policy, true); err != nil || n == 0 {
			break
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d buckets don't get their frames through (is the pair overloaded?)", n)
			break
		}
		time.Sleep(200 * time.Microsecond)
	}
	if err != nil {
		return errors.Join(err, x.set("epair_spread", uint32(1)))
	}
	return x.set("epair_gate", uint32(open))
}

// behindShutGate runs fn, between which and the frames before it there is nothing if the order
// needs it.
func (x *crossing) behindShutGate(fn func() error) error {
	if x.ends[0].rings == 1 && x.ends[1].rings == 1 {
		return fn()
	}
	if err := x.shared.startWorkers(); err != nil { // markers go by them
		return err
	}
	err := x.set("epair_gate", uint32(shut))
	if err == nil {
		err = x.drain()
	}
	if err == nil {
		err = fn()
	}
	return errors.Join(err, x.set("epair_gate", uint32(open)))
}

// drain returns when all frames are out that came in before it was called.
func (x *crossing) drain() error {
	if err := x.shared.wait(); err != nil {
		return err
	}
	for dir := range 2 {
		if err := x.drainDirection(dir); err != nil {
			return err
		}
	}
	return nil
}

// startThreads gives each NAPI of the outer devices a thread on one of the pool's CPUs. Different pairs begin
// with different ones.
func (x *crossing) startThreads() (err error) {
	cpus := x.policy.CPUs()
	for i, e := range x.ends {
		turn := int(x.ports[i]) % max(len(cpus), 1)
		x.threads[i], err = napi.Start(e.outer, append(cpus[turn:len(cpus):len(cpus)], cpus[:turn]...))
		if err != nil {
			return errors.Join(err, x.stopThreads())
		}
	}
	return nil
}

func (x *crossing) stopThreads() error {
	var errs []error
	for i, t := range x.threads {
		if t == nil {
			continue
		}
		errs = append(errs, t.Stop(x.ends[i].outer))
		x.threads[i] = nil
	}
	return errors.Join(errs...)
}
