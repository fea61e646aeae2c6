package control

import (
	"errors"
	"fmt"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
)

// pair is one pair of the daemon: its ends, and what carries its frames.
type pair struct {
	cfg     epair.PairConfig // as resolved
	why     []string
	ends    *epair.Pair
	carrier carrier // nil until there is one
}

// add creates a pair and forwards it. All or nothing.
func (d *Daemon) add(cfg epair.PairConfig) (*pair, error) {
	cfg, why, err := choose(cfg)
	if err != nil {
		return nil, err
	}
	p := &pair{cfg: cfg, why: why}
	if err := d.build(p); err != nil {
		err = errors.Join(err, d.detach(p))
		if p.ends != nil {
			err = errors.Join(err, p.ends.Delete())
		}
		return nil, err
	}
	return p, nil
}

// build makes what p is; what there is of it after an error is the caller's to undo.
//
// The carrier comes before the inner ends go up, so that no frame passes uncounted.
func (d *Daemon) build(p *pair) (err error) {
	if p.ends, err = epair.Create(p.cfg, d.env); err != nil {
		return err
	}
	p.why = append(p.why, p.ends.Warnings()...)
	if p.carrier, err = d.carry(p); err != nil {
		return err
	}
	return p.ends.Up()
}

// carry makes the carrier of p's datapath.
func (d *Daemon) carry(p *pair) (carrier, error) {
	return d.carryUser(p)
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

// choose resolves what the configuration left open, and refuses what can't be had.
// why names each choice.
func choose(cfg epair.PairConfig) (epair.PairConfig, []string, error) {
	var why []string
	switch cfg.Datapath {
	case "auto":
		cfg.Datapath = "user"
		why = append(why, "datapath user: chosen by auto, the only one that this version has")
	case "user":
		why = append(why, "datapath user: as configured")
	default:
		return cfg, nil, fmt.Errorf("add pair %s: datapath %s: this version carries frames in its own workers only (use user or auto)",
			cfg.Name, cfg.Datapath)
	}
	switch cfg.Mode {
	case "pool":
		why = append(why, "mode pool: the flow hash picks the worker of each frame")
	case "inline":
		why = append(why, "mode inline: one worker of the pool serves the pair, without flow hash")
	case "poller":
		why = append(why, "mode poller: a thread of the pair's own polls, and sleeps when it is idle")
	}
	if cfg.Port == "xdp" {
		for _, e := range []epair.EndConfig{cfg.A, cfg.B} {
			if e.Kind == epair.Dev {
				return cfg, nil, fmt.Errorf("add pair %s: port xdp on %s: AF_XDP can't carry unfinished checksums, and what sends to this interface isn't epair's to set (use port packet)",
					cfg.Name, e)
			}
		}
	}
	return cfg, why, nil
}
