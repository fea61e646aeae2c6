package control

import (
	"errors"
	"fmt"
	"maps"

	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// SetRSS changes hash and table of all pairs while their frames pass; what isn't named stays. All or nothing.
func (d *Daemon) SetRSS(want RSSChange) (a RSSChanged, err error) {
	if err := d.begin(); err != nil {
		return a, fmt.Errorf("set rss: %w", err)
	}
	defer d.life.RUnlock()
	d.policy.Lock()
	defer d.policy.Unlock()
	next, err := want.apply(d.steer, len(d.cpus))
	if err != nil {
		return a, fmt.Errorf("set rss: %w: %w", ErrRequest, err)
	}
	c, err := d.setAll(next)
	if err != nil {
		return a, err
	}
	return RSSChanged{RSS: d.RSS(), Change: answerChange(c)}, nil
}

// apply returns old with what c names.
func (c *RSSChange) apply(old *fanout.Steering, workers int) (*fanout.Steering, error) {
	if *c == (RSSChange{}) {
		return nil, errors.New("nothing to change (name func, key, symmetric, fields, inner or table)")
	}
	h, t := old.Hasher(), old.Table()
	if c.Func != nil || c.Key != nil || c.Symmetric != nil || c.Fields != nil || c.Inner != nil {
		cfg := h.Config()
		set(&cfg.Func, c.Func)
		set(&cfg.Key, c.Key)
		set(&cfg.Symmetric, c.Symmetric)
		set(&cfg.Inner, c.Inner)
		if c.Func != nil && *c.Func == rss.XXHash.String() && c.Key == nil {
			cfg.Key = "" // it has none
		}
		if c.Fields != nil {
			cfg.Fields = maps.Clone(cfg.Fields)
			maps.Copy(cfg.Fields, *c.Fields)
		}
		var err error
		if h, err = rss.New(cfg); err != nil {
			return nil, err
		}
	}
	if c.Table != nil {
		var err error
		if t, err = rss.ParseTable(*c.Table, 0, workers); err != nil {
			return nil, err
		}
	}
	return fanout.NewSteering(h, t), nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// SetPool moves the workers to other CPUs while they forward. All or nothing.
func (d *Daemon) SetPool(want PoolChange) (a PoolChanged, err error) {
	if err := d.begin(); err != nil {
		return a, fmt.Errorf("set pool: %w", err)
	}
	defer d.life.RUnlock()
	next, err := want.parse()
	if err != nil {
		return a, fmt.Errorf("set pool: %w: %w", ErrRequest, err)
	}
	d.policy.Lock()
	defer d.policy.Unlock()
	if len(next) != len(d.cpus) {
		return a, fmt.Errorf("set pool: %w: %d cpus for %d workers (name as many, or start the daemon anew)", ErrConflict, len(next), len(d.cpus))
	}
	c, err := d.pool.SetCPUs(next)
	if err != nil {
		return a, err
	}
	if err := d.kernel.setCPUs(d.steer.Table(), d.cpus, next); err != nil {
		_, undo := d.pool.SetCPUs(d.cpus)
		return a, errors.Join(fmt.Errorf("set pool cpus of kernel datapaths: %w", err), undo)
	}
	d.cpus = next
	return PoolChanged{Pool: d.Pool(), Change: answerChange(c)}, nil
}

// parse returns one CPU per worker.
func (c *PoolChange) parse() ([]int, error) {
	if c.CPUs == "" {
		return nil, errors.New("nothing to change (name cpus)")
	}
	set, err := cpus.Parse(c.CPUs)
	if err != nil {
		return nil, fmt.Errorf("cpus: %w", err)
	}
	allowed, err := cpus.Allowed()
	if err != nil {
		return nil, err
	}
	if bad := cpus.Without(set, allowed); len(bad) > 0 {
		return nil, fmt.Errorf("cpus: cpu %s may not be used by this process (allowed: %s)", cpus.Format(bad), cpus.Format(allowed))
	}
	return set, nil
}
