package control

import (
	"errors"
	"slices"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/kern/gate"
)

// pair is one pair of the daemon: its ends, and what carries its frames.
type pair struct {
	cfg     epair.PairConfig // as resolved
	why     []string
	ends    *epair.Pair
	carrier carrier    // nil until there is one
	past    past       // before it
	gate    *gate.Gate // while the datapath changes
}

// add creates a pair and forwards it. All or nothing. Of the datapaths among which auto
// chooses it is the first that can carry these ends here; why the others can't is told.
func (d *Daemon) add(cfg epair.PairConfig) (*pair, error) {
	var why []string
	for _, c := range choices(&cfg) {
		cfg.Datapath = c.datapath
		if err := errors.Join(refuse(&cfg), refusePersist(&cfg)); err != nil {
			return nil, err
		}
		p := &pair{cfg: cfg, why: append(slices.Clone(why), "datapath "+c.datapath+": "+c.why, "mode "+cfg.Mode+": "+modeMeans(&cfg))}
		err := d.build(p)
		if err == nil {
			return p, nil
		}
		err = errors.Join(err, d.discard(p))
		var no *notCarried
		if !c.optional || !errors.As(err, &no) {
			return nil, err
		}
		why = append(why, "not "+c.datapath+": "+OneLine(no))
	}
	panic("unreachable: the last choice isn't optional")
}

// notCarried says that a datapath can't carry a pair whose ends exist.
type notCarried struct{ error }

func (e *notCarried) Unwrap() error { return e.error }

// discard removes what build made of p.
func (d *Daemon) discard(p *pair) error {
	if p.adopted() {
		return p.leave()
	}
	err := d.detach(p)
	if p.ends != nil {
		err = errors.Join(err, p.ends.Delete())
	}
	return err
}

// build makes what p is; what there is of it after an error is the caller's to undo.
func (d *Daemon) build(p *pair) (err error) {
	if p.ends, err = epair.Create(p.cfg, d.env); err != nil {
		return err
	}
	p.why = append(p.why, p.ends.Warnings()...)
	if p.adopted() {
		err = d.buildAdopted(p)
	} else {
		err = d.buildNew(p)
	}
	if err != nil {
		return err
	}
	return p.keepOn()
}

// buildNew is build for ends that are new, and down.
//
// The carrier comes before the inner ends go up, so that no frame passes uncounted. An interface
// that is down has no NAPI, though, so threads for those of a direct pair come after.
func (d *Daemon) buildNew(p *pair) (err error) {
	mode := p.cfg.Mode
	late := p.cfg.Datapath == "direct" && mode == "poller"
	if late {
		mode = "inline"
	}
	if p.carrier, err = d.carry(p, mode); err != nil {
		return &notCarried{err}
	}
	if err := p.ends.Up(); err != nil || !late {
		return err
	}
	if _, err = p.carrier.setMode(p.cfg.Mode); err != nil {
		return &notCarried{err}
	}
	return nil
}

// carry makes the carrier of p's datapath.
func (d *Daemon) carry(p *pair, mode string) (carrier, error) {
	if p.cfg.Datapath == "user" {
		return d.carryUser(p)
	}
	return d.carryKernel(p, mode)
}

// detach stops forwarding p and closes what carried it.
func (d *Daemon) detach(p *pair) error {
	if p.carrier == nil {
		return nil
	}
	return p.carrier.close()
}

func (d *Daemon) pollerRule(cfg epair.PairConfig) fanout.PollerRule {
	c := d.cfg.Poller
	if cfg.Poller != nil {
		c = *cfg.Poller
	}
	return fanout.PollerRule{Spin: c.Spin, Yield: c.Yield, Idle: c.Idle}
}
