package skb

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/epair-net/epair/fanout/kern"
)

// SetMode implements kern.Crossing.
func (c *crossing) SetMode(mode kern.Mode) (kern.Change, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return kern.Change{}, fmt.Errorf("set mode of %s: %w", c.name, os.ErrClosed)
	}
	if mode == c.mode {
		return kern.Change{}, nil
	}
	if err := c.save(true); err != nil {
		return kern.Change{}, fmt.Errorf("set mode of %s: %w", c.name, err)
	}
	change, err := c.setMode(mode)
	if err = errors.Join(err, c.save(false)); err != nil {
		return change, fmt.Errorf("set mode of %s: %w", c.name, err)
	}
	return change, nil
}

func (c *crossing) setMode(mode kern.Mode) (kern.Change, error) {
	if mode == c.mode {
		return kern.Change{}, nil
	}
	was := c.mode
	out, err := c.leave()
	if err != nil {
		return out, err
	}
	in, err := c.enter(mode)
	if err != nil && was != kern.Inline {
		_, back := c.enter(was)
		err = errors.Join(err, back)
	}
	return kern.Change{Blocked: out.Blocked + in.Blocked, Micros: out.Micros + in.Micros}, err
}

// leave changes to inline, which is between any two other modes.
func (c *crossing) leave() (kern.Change, error) {
	switch c.mode {
	case kern.Pool:
		return c.leavePool()
	case kern.Poller:
		return c.leavePoller()
	}
	return kern.Change{}, nil
}

// enter changes from inline.
func (c *crossing) enter(mode kern.Mode) (kern.Change, error) {
	switch mode {
	case kern.Inline:
		return kern.Change{}, nil
	case kern.Pool:
		return c.enterPool()
	case kern.Poller:
		return c.enterPoller()
	}
	return kern.Change{}, fmt.Errorf("%w: there is no mode %q", kern.ErrRefused, mode)
}

// fenced is how many frames were dropped for order's sake.
func (c *crossing) fenced() (n uint64, err error) {
	for dir := range 2 {
		counts, err := c.progs.counters.Read(dir)
		if err != nil {
			return 0, err
		}
		n += counts.Drops["fence"]
	}
	return n, nil
}

func (c *crossing) change(start time.Time, before uint64) (kern.Change, error) {
	took := time.Since(start).Microseconds()
	after, err := c.fenced()
	return kern.Change{Blocked: after - before, Micros: took}, err
}

// Moving implements kern.Crossing.
func (c *crossing) Moving() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, fmt.Errorf("read fence of %s: %w", c.name, os.ErrClosed)
	}
	if c.mode != kern.Pool {
		return 0, nil
	}
	n, err := c.progs.fence.Moving(c.policy, false)
	if err != nil || n == 0 || time.Since(c.settled) < 50*time.Millisecond {
		return n, err
	}
	c.settled = time.Now()
	if err := c.settle(); err != nil {
		return 0, fmt.Errorf("read fence of %s: %w", c.name, err)
	}
	return c.progs.fence.Moving(c.policy, false)
}

// settle finds out which frames were lost.
func (c *crossing) settle() error {
	d, err := drainOf(c.policy)
	if err != nil {
		return err
	}
	return c.progs.fence.Settle(func() error { return d.wait(c.hops) })
}
