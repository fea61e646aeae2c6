package skb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epair-net/epair/fanout/kern"
)

// enterPool changes from inline to pool:
//
//	programs   RPS   slots   a frame waits in the backlog of
//	plain      off   -       its CPU
//	pool       off   local   its CPU, with a mark
//	pool       on    local   its CPU, by its mark
//	  … until all frames without a mark are out
//	pool       on    table   the CPU of its bucket, as soon as the bucket may move
func (c *crossing) enterPool() (kern.Change, error) {
	if c.noPool != nil {
		return kern.Change{}, c.noPool
	}
	d, err := drainOf(c.policy)
	if err != nil {
		return kern.Change{}, err
	}
	all, err := c.readyPool(d)
	if err != nil {
		return kern.Change{}, err
	}
	start := time.Now()
	before, err := c.fenced()
	if err == nil {
		err = c.engage(d, all)
	}
	if err != nil {
		return kern.Change{}, errors.Join(err, c.disengage(d))
	}
	c.mode = kern.Pool
	return c.change(start, before)
}

// startPool is enterPool for a pair that carries no frames yet.
func (c *crossing) startPool() error {
	if c.noPool != nil {
		return c.noPool
	}
	d, err := drainOf(c.policy)
	if err != nil {
		return err
	}
	all, err := c.readyPool(d)
	if err != nil {
		return err
	}
	return errors.Join(c.progs.setLocal(false), c.swap(true, true), c.swap(false, true), c.setMasks(all))
}

func (c *crossing) setMasks(text []byte) error {
	for _, m := range c.masks {
		if err := m.set(text); err != nil {
			return err
		}
	}
	return nil
}

// engage takes the steps of enterPool; all is RPS's mask.
func (c *crossing) engage(d *drain, all []byte) error {
	if err := c.progs.setLocal(true); err != nil {
		return err
	}
	if err := errors.Join(c.swap(true, true), c.swap(false, true), quiesce()); err != nil {
		return err
	}
	if err := c.setMasks(all); err != nil {
		return err
	}
	if err := d.wait(c.hops); err != nil {
		return err
	}
	var err error
	if c.unsteered, err = c.countUnsteered(); err != nil {
		return err
	}
	if err := c.progs.setLocal(false); err != nil {
		return err
	}
	return c.await(d, false)
}

// leavePool changes from pool to inline: the steps of enterPool in reverse.
func (c *crossing) leavePool() (kern.Change, error) {
	d, err := drainOf(c.policy)
	if err != nil {
		return kern.Change{}, err
	}
	start := time.Now()
	before, err := c.fenced()
	if err != nil {
		return kern.Change{}, err
	}
	if err := c.disengage(d); err != nil {
		return kern.Change{}, err
	}
	c.mode = kern.Inline
	return c.change(start, before)
}

func (c *crossing) disengage(d *drain) error {
	if err := c.progs.setLocal(true); err != nil {
		return err
	}
	if err := c.await(d, true); err != nil {
		return err
	}
	if err := errors.Join(c.setMasks(nobody), c.swap(false, false)); err != nil {
		return err
	}
	if err := d.wait(c.hops); err != nil {
		return err
	}
	return c.swap(true, false)
}

// swap puts the pool's programs in place of the plain ones, or back: those that take
// marks off, or the others.
func (c *crossing) swap(takesMark, pool bool) error {
	for _, h := range c.hooks {
		if h.takesMark != takesMark {
			continue
		}
		if err := h.put(c.progs.byName[h.name(pool)]); err != nil {
			return err
		}
	}
	return nil
}

// await returns when no bucket has frames in flight to a wrong slot. Those that were lost on the
// way, and are the last of their bucket, are found out now and then.
func (c *crossing) await(d *drain, local bool) error {
	const (
		tick     = time.Millisecond
		settle   = 20 * time.Millisecond
		patience = 30 * time.Second
	)
	start, settled := time.Now(), time.Now()
	for {
		n, err := c.progs.fence.Moving(c.policy, local)
		if err != nil || n == 0 {
			return err
		}
		if time.Since(start) > patience {
			return fmt.Errorf("%d buckets don't move for %v: %w", n, patience, os.ErrDeadlineExceeded)
		}
		if time.Since(settled) > settle {
			if err := c.progs.fence.Settle(func() error { return d.wait(c.hops) }); err != nil {
				return err
			}
			settled = time.Now()
		}
		time.Sleep(tick)
	}
}

// readyPool loads what mode pool needs, refuses what would keep it from working, and returns RPS's mask.
func (c *crossing) readyPool(d *drain) (all []byte, err error) {
	usable, err := d.usable()
	if err != nil {
		return nil, err
	}
	if err := c.checkPool(usable); err != nil {
		return nil, err
	}
	if err := c.progs.addFence(usable); err != nil {
		return nil, err
	}
	c.usable = usable
	if err := checkBacklog(c.progs.fence.InFlight()); err != nil {
		return nil, err
	}
	for _, h := range c.hooks {
		if err := c.progs.load(h.pool); err != nil {
			return nil, err
		}
	}
	return formatMask(usable), nil
}

func (c *crossing) checkPool(usable []int) error {
	for _, cpu := range c.policy.CPUs() {
		if !slices.Contains(usable, cpu) {
			return fmt.Errorf("%w: cpu %d is offline or isolated, RPS doesn't use it (choose other CPUs for the pool)", kern.ErrRefused, cpu)
		}
	}
	for _, m := range c.masks {
		if err := m.checkFlows(); err != nil {
			return err
		}
	}
	for _, h := range c.hooks {
		if err := h.checkGRO(); err != nil {
			return err
		}
	}
	return nil
}

// checkBacklog refuses backlogs that are longer than what the fence tells apart. Only the first network namespace shows
// how long they may be; elsewhere the kernel's default of 1000 is taken for granted.
func checkBacklog(most int) error {
	const path = "/proc/sys/net/core/netdev_max_backlog"
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read length of backlogs: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if n > most {
		return fmt.Errorf("%w: a backlog may have %d frames, the fence tells %d apart (sysctl net.core.netdev_max_backlog=%d, or a smaller RSS table)", kern.ErrRefused, n, most, most)
	}
	return nil
}
