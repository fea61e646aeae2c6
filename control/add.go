package control

import (
	"errors"
	"fmt"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/kern"
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
	if p.cfg.Datapath == "user" {
		return d.carryUser(p)
	}
	return d.carryKernel(p)
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
	why := "as configured"
	if cfg.Datapath == "auto" {
		cfg.Datapath, why = automatic(&cfg)
	}
	whys := []string{"datapath " + cfg.Datapath + ": " + why, "mode " + cfg.Mode + ": " + modeMeans(&cfg)}
	if cfg.Datapath != "user" {
		for _, e := range []epair.EndConfig{cfg.A, cfg.B} {
			if e.Kind == epair.TAP {
				return cfg, nil, fmt.Errorf("add pair %s: datapath %s: %w: only a process can take the frames of %s (use datapath user)",
					cfg.Name, cfg.Datapath, kern.ErrRefused, e)
			}
		}
		return cfg, whys, nil
	}
	if cfg.Port == "xdp" {
		for _, e := range []epair.EndConfig{cfg.A, cfg.B} {
			if e.Kind == epair.Dev {
				return cfg, nil, fmt.Errorf("add pair %s: port xdp on %s: AF_XDP can't carry unfinished checksums, and what sends to this interface isn't epair's to set (use port packet)",
					cfg.Name, e)
			}
		}
	}
	return cfg, whys, nil
}

// automatic chooses the datapath, and says why.
func automatic(cfg *epair.PairConfig) (datapath, why string) {
	a, b := cfg.A.Kind, cfg.B.Kind
	switch {
	case a == epair.TAP || b == epair.TAP:
		return "user", "chosen by auto, as only a process can take the frames of a tap"
	case cfg.Port == "xdp":
		return "user", "chosen by auto, as port xdp is a port of it"
	}
	return "user", "chosen by auto"
}

func modeMeans(cfg *epair.PairConfig) string {
	switch {
	case cfg.Datapath == "user" && cfg.Mode == "inline":
		return "one worker of the pool serves the pair, without flow hash"
	case cfg.Datapath == "user" && cfg.Mode == "poller":
		return "a thread of the pair's own polls, and sleeps when it is idle"
	case cfg.Datapath == "user":
		return "the flow hash picks the worker of each frame"
	case cfg.Mode == "inline":
		return "the CPU that sends or receives a frame carries it"
	case cfg.Mode == "poller":
		return "threads of the kernel poll (threaded NAPI)"
	}
	return "the flow hash picks the CPU of each frame"
}
