package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// hands bounds the goroutines that create or remove pairs: most of the time they wait, for the kernel's locks and
// for its readers, and what waits in the kernel is a thread.
const hands = 16

// each calls f for 0 … n-1, some at a time, and joins the errors. Once stop says so no more calls are begun.
func each(n int, stop func() bool, f func(int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	slots := make(chan struct{}, hands)
	for i := range n {
		slots <- struct{}{}
		if stop() {
			break
		}
		wg.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Add creates pairs and forwards them. All or nothing, also when ctx ends before it is done.
func (d *Daemon) Add(ctx context.Context, cfgs []epair.PairConfig) ([]Pair, error) {
	if err := (&epair.Config{Version: epair.Version, Pairs: cfgs}).Check(nil); err != nil {
		return nil, fmt.Errorf("add pairs: %w", err)
	}
	if err := d.begin(); err != nil {
		return nil, fmt.Errorf("add pairs: %w", err)
	}
	defer d.life.RUnlock()
	d.policy.RLock()
	defer d.policy.RUnlock()
	names := make([]string, len(cfgs))
	for i := range cfgs {
		names[i] = cfgs[i].Name
	}
	slots, err := d.pairs.reserve(names)
	if err != nil {
		return nil, err
	}
	made, err := d.create(ctx, cfgs)
	if err != nil {
		err = errors.Join(err, d.drop(slots, made))
		return nil, err
	}
	answers := make([]Pair, len(made))
	for i, p := range made {
		answers[i] = p.answer()
		slots[i].put(p)
	}
	d.pairs.done(slots)
	return answers, nil
}

// create makes pairs, several at a time. After an error those that were made are returned too, with nil for the others.
func (d *Daemon) create(ctx context.Context, cfgs []epair.PairConfig) ([]*pair, error) {
	made := make([]*pair, len(cfgs))
	failed := make(chan struct{})
	var once sync.Once
	stop := func() bool {
		select {
		case <-failed:
			return true
		default:
			return ctx.Err() != nil || d.closing.Load() // pairs with Close
		}
	}
	err := each(len(cfgs), stop, func(i int) (err error) {
		made[i], err = d.add(cfgs[i].WithDefaults())
		if err != nil {
			once.Do(func() { close(failed) })
		}
		return err
	})
	if err == nil && slices.Contains(made, nil) {
		err = fmt.Errorf("add pairs: %w", cmp.Or(context.Cause(ctx), ErrStopping))
	}
	return made, err
}

// drop removes what create made before it failed, and frees the names.
func (d *Daemon) drop(slots []*slot, made []*pair) error {
	for i, p := range made {
		slots[i].put(p)
	}
	return d.remove(slots)
}

// Remove removes pairs, all that were created for them, and what an earlier call couldn't remove. If a
// name is unknown, nothing is removed.
func (d *Daemon) Remove(names []string) error {
	if err := d.begin(); err != nil {
		return fmt.Errorf("delete pairs: %w", err)
	}
	defer d.life.RUnlock()
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	slots, err := d.pairs.take(names, true)
	if err != nil {
		return fmt.Errorf("delete %w", err)
	}
	return d.remove(slots)
}

// remove empties slots, which are the caller's, and frees those whose pair is gone.
func (d *Daemon) remove(slots []*slot) error {
	gone := make([]*pair, len(slots))
	for i, s := range slots {
		gone[i] = cmp.Or(s.put(nil), s.left)
	}
	var ends []*epair.Pair
	err := each(len(slots), func() bool { return false }, func(i int) error {
		if gone[i] == nil {
			return nil
		}
		return d.detach(gone[i])
	})
	for _, p := range gone {
		if p != nil && p.ends != nil {
			ends = append(ends, p.ends)
		}
	}
	if err = errors.Join(err, d.env.DeleteAll(ends)); err == nil {
		d.pairs.free(slots)
		return nil
	}
	for i, s := range slots {
		d.pairs.keep(s, gone[i])
	}
	d.pairs.done(slots)
	return fmt.Errorf("%w (ask again for the rest)", err)
}

// Set changes a pair while its frames pass. All or nothing.
func (d *Daemon) Set(name string, want PairChange) (a Changed, err error) {
	if err := d.begin(); err != nil {
		return a, fmt.Errorf("set pair %s: %w", name, err)
	}
	defer d.life.RUnlock()
	d.policy.RLock()
	defer d.policy.RUnlock()
	slots, err := d.pairs.take([]string{name}, false)
	if err != nil {
		return a, fmt.Errorf("set %w", err)
	}
	defer d.pairs.done(slots)
	s := slots[0]
	p := s.get()
	if err := want.check(p.cfg.Datapath); err != nil {
		return a, fmt.Errorf("set pair %s: %w", name, err)
	}
	if want.Mode != "" && want.Mode != p.cfg.Mode {
		if a.Change, err = p.carrier.setMode(want.Mode); err != nil {
			return a, err
		}
		s.update(func(p *pair) {
			p.cfg.Mode = want.Mode
			p.why = append(withoutChoice(p.why, "mode "), fmt.Sprintf("mode %s: set while it ran", want.Mode))
		})
	}
	a.Pair = p.answer()
	return a, nil
}

// update changes what is answered for a pair.
func (s *slot) update(f func(*pair)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.pair)
}

// withoutChoice returns why without the lines of one choice. Answers share why, so it is copied.
func withoutChoice(why []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(why), func(line string) bool {
		return len(line) >= len(prefix) && line[:len(prefix)] == prefix
	})
}

// check refuses what a pair of that datapath can't be changed to.
func (c *PairChange) check(datapath string) error {
	if c.Mode == "" && c.Datapath == "" {
		return fmt.Errorf("%w: nothing to change (name a mode or a datapath)", ErrRequest)
	}
	if !slices.Contains([]string{"", "inline", "pool", "poller"}, c.Mode) {
		return fmt.Errorf("%w: mode: %.40q is unknown (use inline, pool or poller)", ErrRequest, c.Mode)
	}
	if !slices.Contains([]string{"", "direct", "tc", "xdp", "user"}, c.Datapath) {
		return fmt.Errorf("%w: datapath: %.40q is unknown (use direct, tc, xdp or user)", ErrRequest, c.Datapath)
	}
	if c.Datapath != "" && c.Datapath != datapath {
		return fmt.Errorf("%w: datapath %s can't become %s while the pair exists (delete it and add it anew)", ErrConflict, datapath, c.Datapath)
	}
	return nil
}

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
	c, err := d.pool.SetSteering(next)
	if err != nil {
		return a, err
	}
	d.setSteer(next)
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
