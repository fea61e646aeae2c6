package load

import (
	"math"
	"math/bits"
	"time"
)

// reset makes a run start from sequence number 0 with nothing due.
func (c *generator) reset() error {
	if err := c.give(genGenOrder{}, never); err != nil {
		return err
	}
	return c.engine.clear(c.flows)
}

func (c *generator) give(o genGenOrder, start uint64) error {
	o.Start = start
	return c.engine.give(o)
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
