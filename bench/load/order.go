package load

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// reset makes a run start from sequence number 0 with nothing due.
func (c *generator) reset() error {
	if err := c.give(genGenOrder{}, never); err != nil {
		return err
	}
	if err := c.objs.States.Put(uint32(0), &genGenState{}); err != nil {
		return fmt.Errorf("clear generator: %w", err)
	}
	for i := range c.flows {
		if err := c.objs.Templates.Put(uint32(i), &c.flows[i]); err != nil {
			return fmt.Errorf("set flow %d: %w", i, err)
		}
	}
	return nil
}

// give hands an order over in two steps: the program must never see a start with what belonged to another.
func (c *generator) give(o genGenOrder, start uint64) error {
	o.Start = never
	for range 2 {
		if err := c.objs.Orders.Put(uint32(0), &o); err != nil {
			return fmt.Errorf("order frames: %w", err)
		}
		o.Start = start
	}
	return nil
}

// order is what is the same for any start.
func (c *generator) order(run uint16, burst time.Duration) genGenOrder {
	p := c.period()
	return genGenOrder{Period: p, Phase: c.phase(), Burst: uint64(burst), Run: uint32(run)}
}

// period is the time between two frames of this generator in 2⁻²⁰ ns. It is rounded up: down, a whole number
// of periods would end before its time and let one more frame in.
func (c *generator) period() uint64 {
	if c.rate == 0 {
		return 0
	}
	return uint64(math.Ceil(1e9 * (1 << fraction) / c.rate))
}

// phase puts the generators' frames between one another's, ns.
func (c *generator) phase() uint64 { return uint64(c.ordinal * float64(c.period()>>fraction)) }

// intended returns how many frames are due in the first d of a run: those k for which
// phase + ⌊k·period⌋ < d.
func (c *generator) intended(d time.Duration) uint64 {
	p, phase := c.period(), c.phase()
	if p == 0 || uint64(d) <= phase {
		return 0
	}
	span := uint64(d) - phase
	n, rest := bits.Div64(span>>(64-fraction), span<<fraction, p)
	if rest != 0 {
		n++
	}
	return n
}

func (c *generator) state() (s genGenState, err error) {
	if err := c.objs.States.Lookup(uint32(0), &s); err != nil {
		return s, fmt.Errorf("read generator: %w", err)
	}
	return s, nil
}
