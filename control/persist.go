package control

import (
	"errors"
	"fmt"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/kern"
)

// A persistent pair (persist: true) goes on without the daemon:
//
//	what happens                   the pair
//	the daemon ends, or is killed  goes on
//	a daemon is to create it       is adopted, if it is as configured; else made anew, which `why` says
//	a call of that daemon fails    stays, if it was adopted
//	del, gc --all                  is removed

// refusePersist tells why a pair can't be persistent.
func refusePersist(cfg *epair.PairConfig) error {
	if !cfg.Persist || cfg.Datapath != "xdp" {
		return nil
	}
	return fmt.Errorf("add pair %s: persist: %w: the workers and loss counters that pairs of datapath xdp share end with the process (use direct or tc)",
		cfg.Name, kern.ErrRefused)
}

// keep is what p's crossing outlives the process by; nil if it doesn't.
func (p *pair) keep() *kern.Keep {
	if !p.ends.Persist() {
		return nil
	}
	return &kern.Keep{Dir: p.ends.Pins(), Was: p.ends.Carrier(), Save: p.ends.SaveCarrier}
}

// adopted says whether p has outlived another process.
func (p *pair) adopted() bool { return p.ends != nil && p.ends.Adopted() }

// persistent says whether p is to outlive this one.
func (p *pair) persistent() bool { return p.ends != nil && p.ends.Persist() }

// leave ends what the daemon does for a persistent pair, which goes on. It is idempotent.
func (p *pair) leave() error {
	var err error
	if k, ok := p.carrier.(*kernelCarrier); ok {
		err = k.leave()
	}
	return errors.Join(err, p.ends.Leave())
}

// leave gives up what the process has of the crossing.
func (c *kernelCarrier) leave() error {
	c.kernel.remove(c.crossing)
	return c.crossing.Leave()
}

// buildAdopted is build for a pair whose frames pass: its ends are up, and what carries it is taken over in the mode that it has.
func (d *Daemon) buildAdopted(p *pair) (err error) {
	if err := p.ends.Up(); err != nil {
		return err
	}
	if p.carrier, err = d.carry(p, "inline"); err != nil {
		return &notCarried{err}
	}
	if _, err = p.carrier.setMode(p.cfg.Mode); err != nil {
		return &notCarried{err}
	}
	return nil
}

// keepOn makes a persistent pair that works stay, whatever becomes of the process.
func (p *pair) keepOn() error {
	if !p.persistent() {
		return nil
	}
	why := "persist: goes on without the daemon, until it is deleted"
	if p.adopted() {
		why = "persist: adopted, as it went on without a daemon"
	}
	p.why = append(p.why, why)
	return p.ends.Keep()
}
