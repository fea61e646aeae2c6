package xdp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
)

// patience is how long a step of a change of mode may take.
const patience = 5 * time.Second

// byTable is EPAIR_TABLE.
const byTable = ^uint32(0)

// SetMode takes these steps:
//
//	spread   inline → pool  All frames pass the fence, at first to where they are. When those that
//	                        didn't pass it are out, the table says where buckets go.
//	gather   pool → inline  All buckets go to where their frames are. When they have, frames need
//	                        not pass the fence.
//	threads  ↔ poller       The NAPIs stay what they are, so do frames in order. Where an inner side has several rings,
//	                        one per CPU, the pair is spread before and gathered behind: the table's CPUs are
//	                        the same whoever takes the frames in.
//
// None of them drops frames, but for buckets that can't be moved otherwise (fence.h).
func (x *crossing) SetMode(m kern.Mode) (c kern.Change, err error) {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.isClosed() {
		return c, fmt.Errorf("set mode of %s: %w", x.name, os.ErrClosed)
	}
	start := time.Now()
	before, err := x.fenced()
	if err == nil {
		err = x.change(m)
	}
	after, ferr := x.fenced()
	if err = errors.Join(err, ferr); err != nil {
		return c, fmt.Errorf("set mode of %s: %w", x.name, err)
	}
	return kern.Change{Blocked: after - before, Micros: time.Since(start).Microseconds()}, nil
}

// fenced counts frames that were dropped for order's sake.
func (x *crossing) fenced() (n uint64, err error) {
	for dir := range 2 {
		c, err := x.counts.Read(dir)
		if err != nil {
			return 0, err
		}
		n += c.Drops["fence"]
	}
	return n, nil
}

// change goes to a mode, or back to the old one.
func (x *crossing) change(m kern.Mode) error {
	if m != kern.Inline && m != kern.Pool && m != kern.Poller {
		return fmt.Errorf("%w: there is no mode %q (use inline, pool or poller)", kern.ErrRefused, m)
	}
	err := x.steps(m)
	if err != nil {
		return errors.Join(err, x.steps(x.mode))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mode = m
	return nil
}

// steps takes those steps to a mode that haven't been taken.
func (x *crossing) steps(m kern.Mode) error {
	if polled := m == kern.Poller; polled != x.polled {
		if x.ends[0].rings > 1 || x.ends[1].rings > 1 {
			if err := x.spread(); err != nil {
				return err
			}
		}
		toggle := x.stopThreads
		if polled {
			toggle = x.startThreads
		}
		if err := toggle(); err != nil {
			return err
		}
	}
	if m == kern.Pool {
		return x.spread()
	}
	return x.gather()
}

// spread begins the work of the table's CPUs.
func (x *crossing) spread() error {
	if x.spreads {
		return nil
	}
	if err := x.shared.startWorkers(); err != nil {
		return err
	}
	err := x.setEgress(true)
	if err == nil {
		err = x.set("epair_spread", uint32(kern.Local))
	}
	if err == nil {
		err = x.set("epair_gate", uint32(hash))
	}
	if err == nil {
		err = x.drain() // of frames that the fence hasn't counted
	}
	if err == nil {
		err = x.set("epair_spread", byTable)
	}
	x.spreads = true // if not wholly, gather is the way back
	if err == nil {
		err = x.awaitMoved(false)
	}
	return err
}

// gather ends it.
func (x *crossing) gather() error {
	if !x.spreads {
		return nil
	}
	if err := x.gatherFrames(); err != nil {
		return err
	}
	return x.setEgress(false)
}

// gatherFrames returns when no frame waits for a worker, or carries anything.
func (x *crossing) gatherFrames() error {
	err := x.set("epair_spread", uint32(kern.Local))
	if err == nil {
		err = x.shared.wait() // behind it, no program runs that takes a bucket elsewhere
	}
	if err == nil {
		err = x.awaitMoved(true)
	}
	if err == nil {
		err = x.shared.wait() // what is out, is in the stack behind it
	}
	if err == nil {
		err = x.set("epair_gate", uint32(open))
	}
	if err == nil {
		err = x.shared.wait()
	}
	x.spreads = err != nil
	return err
}

// awaitMoved returns when no bucket has frames on their way elsewhere than it should have. Those that lost their
// last frame, and get no other, move behind markers.
func (x *crossing) awaitMoved(local bool) error {
	const while = 10 * time.Millisecond
	start := time.Now()
	for settle := start.Add(while); ; time.Sleep(200 * time.Microsecond) {
		n, err := x.fence.Moving(x.policy, local)
		if err != nil || n == 0 {
			return err
		}
		now := time.Now()
		if now.Sub(start) > patience {
			return fmt.Errorf("%d buckets don't get their frames through (is the pair overloaded?)", n)
		}
		if now.Before(settle) {
			continue
		}
		if err := x.fence.Settle(x.drain); err != nil {
			return err
		}
		settle = time.Now().Add(while)
	}
}

// startThreads gives each NAPI of the outer devices a thread on one of the pool's CPUs. Different pairs begin
// with different ones.
func (x *crossing) startThreads() error {
	x.polled = true // if not wholly, stopThreads is the way back
	for i, e := range x.ends {
		t, err := napi.Start(e.outer, x.cpusFor(i))
		if err != nil {
			return err
		}
		x.setThreads(i, t)
	}
	return nil
}

// cpusFor returns the pool's CPUs, in the order in which the threads of end i take them.
func (x *crossing) cpusFor(i int) []int {
	cpus := x.policy.CPUs()
	turn := int(x.ports[i]) % max(len(cpus), 1)
	return append(cpus[turn:len(cpus):len(cpus)], cpus[:turn]...)
}

func (x *crossing) stopThreads() error {
	var errs []error
	for i, e := range x.ends {
		if t := x.threads[i]; t != nil {
			errs = append(errs, t.Stop(e.outer))
			x.setThreads(i, nil)
		}
	}
	x.polled = false
	return errors.Join(errs...)
}

func (x *crossing) setThreads(i int, t *napi.Threads) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.threads[i] = t
}
