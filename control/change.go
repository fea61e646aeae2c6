package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/epair-net/epair/epair"
)

// hands bounds the goroutines that create or remove pairs: most of the time they wait, for the kernel's locks and
// for its readers, and what waits in the kernel is a thread.
const hands = 16

// each calls f for 0 … n-1, some at a time, and returns the errors there were. Once stop says so no more calls are begun.
func each(n int, stop func() bool, f func(int) error) []error {
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
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
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
	end, err := d.hurry.begin(len(cfgs))
	if err != nil {
		d.pairs.free(slots)
		return nil, fmt.Errorf("add pairs: %w", err)
	}
	made, err := d.create(ctx, cfgs)
	err = errors.Join(err, end())
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
	errs := each(len(cfgs), stop, func(i int) (err error) {
		made[i], err = d.add(cfgs[i].WithDefaults())
		if err != nil {
			once.Do(func() { close(failed) })
		}
		return err
	})
	switch {
	case len(errs) > 1:
		return made, fmt.Errorf("%w (and %d more that failed at the same time)", errs[0], len(errs)-1)
	case len(errs) == 1:
		return made, errs[0]
	case slices.Contains(made, nil):
		return made, fmt.Errorf("add pairs: %w", cmp.Or(context.Cause(ctx), ErrStopping))
	}
	return made, nil
}

// drop removes what create made before it failed, and frees the names.
func (d *Daemon) drop(slots []*slot, made []*pair) error {
	for i, p := range made {
		slots[i].put(p)
	}
	return d.remove(slots, (*pair).adopted)
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
	return d.remove(slots, func(*pair) bool { return false })
}

// remove empties slots, which are the caller's, and frees those whose pair is gone. Pairs of which stays says so go on
// without the daemon.
func (d *Daemon) remove(slots []*slot, stays func(*pair) bool) (err error) {
	end, slow := d.hurry.begin(len(slots)) // without it all is removed too
	defer func() { err = errors.Join(err, slow, end()) }()
	gone := make([]*pair, len(slots))
	for i, s := range slots {
		gone[i] = cmp.Or(s.put(nil), s.left)
	}
	var ends []*epair.Pair
	err = errors.Join(each(len(slots), func() bool { return false }, func(i int) error {
		switch p := gone[i]; {
		case p == nil:
			return nil
		case stays(p):
			gone[i] = nil
			return p.leave()
		default:
			return d.detach(p)
		}
	})...)
	if d.ports != nil {
		err = errors.Join(err, d.ports.reaper.wait())
	}
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
	if a.Change, err = d.change(slots[0], &want); err != nil {
		return a, fmt.Errorf("set pair %s: %w", name, err)
	}
	a.Pair = slots[0].get().answer()
	return a, nil
}

// change changes the pair of a slot that is taken.
func (d *Daemon) change(s *slot, want *PairChange) (c Change, err error) {
	p := s.get()
	datapath, mode := cmp.Or(want.Datapath, p.cfg.Datapath), cmp.Or(want.Mode, p.cfg.Mode)
	if err := want.check(&p.cfg); err != nil {
		return c, err
	}
	_, lost := p.carrier.(noCarrier)
	switch {
	case datapath != p.cfg.Datapath || lost && want.Datapath != "":
		return d.exchange(s, datapath, mode)
	case mode == p.cfg.Mode:
		return c, nil
	}
	if c, err = p.carrier.setMode(mode); err != nil {
		return c, err
	}
	s.update(func(p *pair) { p.becomes(mode) })
	return c, nil
}

// becomes notes that the mode is another.
func (p *pair) becomes(mode string) {
	p.cfg.Mode = mode
	p.why = append(withoutChoice(p.why, "mode "), fmt.Sprintf("mode %s: set while it ran", mode))
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

// check refuses what makes no sense, and what would drop frames if none may be lost.
func (c *PairChange) check(cfg *epair.PairConfig) error {
	if c.Mode == "" && c.Datapath == "" {
		return fmt.Errorf("%w: nothing to change (name a mode or a datapath)", ErrRequest)
	}
	if !slices.Contains([]string{"", "inline", "pool", "poller"}, c.Mode) {
		return fmt.Errorf("%w: mode: %.40q is unknown (use inline, pool or poller)", ErrRequest, c.Mode)
	}
	if !slices.Contains([]string{"", "direct", "tc", "xdp", "user"}, c.Datapath) {
		return fmt.Errorf("%w: datapath: %.40q is unknown (use direct, tc, xdp or user)", ErrRequest, c.Datapath)
	}
	if !c.Lossless {
		return nil
	}
	if c.Datapath != "" && c.Datapath != cfg.Datapath {
		return fmt.Errorf("%w: datapath %s can't become %s without dropping what comes meanwhile (leave out lossless)", ErrConflict, cfg.Datapath, c.Datapath)
	}
	backlog := cfg.Datapath == "direct" || cfg.Datapath == "tc"
	if backlog && c.Mode != "" && (c.Mode == "poller") != (cfg.Mode == "poller") {
		return fmt.Errorf("%w: datapath %s can't change from mode %s to %s without dropping frames, as they are to wait in another queue (leave out lossless)",
			ErrConflict, cfg.Datapath, cfg.Mode, c.Mode)
	}
	return nil
}
