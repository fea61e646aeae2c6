package fanout

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrStuck says that a change was given up because a worker didn't send what it held. All
// is as it was before.
var ErrStuck = errors.New("a worker doesn't send what it holds")

const (
	// stallAfter is how long the frames of a moving bucket go on to its old worker before its
	// lane waits for them: 5 ms fill half of a port's usual 1024 slots at 100 000 frames a second.
	stallAfter = 5 * time.Millisecond
	// giveUp is how long a step of a change may take. A worker that doesn't send for so long is stuck.
	giveUp = 5 * time.Second
)

// Change is what a live change did. No frame is lost or overtaken by it.
type Change struct {
	Moved int // buckets that went to another worker, over all lanes
	Held  int // of these, those that had frames in flight when they were to move
	Lanes int // whose reader changed

	Took    time.Duration // from the request to its end
	P50     time.Duration // from the request to the move of a bucket, half of them
	Max     time.Duration // of all of them
	Blocked time.Duration // the longest time that a lane left frames in its port
}

// change is a change that is under way.
type change struct {
	start   time.Time
	giveUp  time.Duration
	logs    map[*worker]*moveLog
	blocked time.Duration
	lanes   int
}

func (p *Pool) newChange() *change {
	return &change{start: time.Now(), giveUp: p.giveUp, logs: map[*worker]*moveLog{}}
}

func (c *change) log(w *worker) *moveLog {
	if c.logs[w] == nil {
		c.logs[w] = &moveLog{}
	}
	return c.logs[w]
}

// sum returns the result, and adds it to the pool's statistics.
func (c *change) sum(p *Pool, err error) Change {
	r := Change{Lanes: c.lanes, Took: time.Since(c.start), Blocked: c.blocked}
	var took histogram
	for _, log := range c.logs {
		r.Moved += log.moved
		r.Held += log.held
		took.add(&log.took)
		r.Blocked = max(r.Blocked, log.blocked.max)
	}
	r.P50, r.Max = took.quantile(0.5), took.max
	p.fence.add(&r, &took, err)
	return r
}

// each calls f once on each worker that reads some of lanes, with these.
func (c *change) each(lanes []*Lane, f func(w *worker, own []*Lane)) error {
	of := map[*worker][]*Lane{}
	for _, l := range lanes {
		of[l.reader.Load()] = append(of[l.reader.Load()], l)
	}
	var errs []error
	for w, own := range of {
		errs = append(errs, w.ask(c.giveUp, func() error { f(w, own); return nil }))
	}
	return errors.Join(errs...)
}

// goal says by whose table the buckets of a lane go; nil: all to its reader.
type goal func(*Lane) *Steering

func toReader(*Lane) *Steering { return nil }

// move moves the buckets of lanes where to says, and waits until they have moved. All or nothing.
func (c *change) move(lanes []*Lane, to goal) error {
	now := time.Now()
	for w := range c.readers(lanes) {
		c.log(w) // not by the workers, which are many
	}
	err := c.each(lanes, func(w *worker, own []*Lane) {
		for _, l := range own {
			w.retarget(l, to(l), c.logs[w], now)
		}
	})
	if err == nil {
		err = c.wait(lanes, now)
	}
	if err != nil {
		err = errors.Join(err, c.undo(lanes))
	}
	return err
}

// wait waits until no bucket of lanes is moving.
func (c *change) wait(lanes []*Lane, since time.Time) error {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		past := time.Since(since)
		left, err := c.sweep(lanes, past > stallAfter)
		if left == 0 || err != nil {
			return err
		}
		if past > c.giveUp {
			return fmt.Errorf("%d buckets have frames in flight after %v: %w", left, c.giveUp, ErrStuck)
		}
		time.Sleep(pause)
	}
}

// readers returns who reads lanes.
func (c *change) readers(lanes []*Lane) map[*worker]*int {
	of := map[*worker]*int{}
	for _, l := range lanes {
		of[l.reader.Load()] = new(int)
	}
	return of
}

// sweep moves what can move now, and returns how many buckets can't.
func (c *change) sweep(lanes []*Lane, stall bool) (left int, err error) {
	now, counts := time.Now(), c.readers(lanes)
	err = c.each(lanes, func(w *worker, own []*Lane) {
		for _, l := range own {
			if w.sweep(l); stall {
				w.stall(l, now)
			}
			*counts[w] += l.moving
		}
	})
	for _, n := range counts {
		left += *n
	}
	return left, err
}

// undo sends the buckets that moved back, without waiting, and leaves those that didn't.
func (c *change) undo(lanes []*Lane) error {
	return c.each(lanes, func(w *worker, own []*Lane) {
		for _, l := range own {
			w.abandon(l)
			w.retarget(l, l.steer, c.logs[w], time.Now())
		}
	})
}

// adopt gives lanes, whose buckets are all their readers' own, another hash.
func (c *change) adopt(lanes []*Lane, s *Steering) error {
	made := map[*Lane][]bucket{}
	for _, l := range lanes {
		made[l] = make([]bucket, s.table.Size())
	}
	return c.each(lanes, func(w *worker, own []*Lane) {
		for _, l := range own {
			w.adopt(l, s, made[l])
		}
	})
}

// steered returns the lanes whose frames are spread.
func (p *Pool) steered() []*Lane {
	var lanes []*Lane
	for _, pair := range p.pairs {
		for _, l := range pair.lanes() {
			if l.steer != nil {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

// SetSteering changes hash and table of all pairs while they forward. All or nothing.
//
// Frames go on to a bucket's old worker until it holds none of the bucket. Another hash makes other buckets: all
// of them first go to their lane's reader, and from it to the workers that the new table names.
func (p *Pool) SetSteering(s *Steering) (Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Change{}, fmt.Errorf("set rss: %w", ErrClosed)
	}
	if err := s.check(len(p.workers)); err != nil {
		return Change{}, fmt.Errorf("set rss: %w", err)
	}
	c := p.newChange()
	err := c.steer(p.steered(), s)
	if err == nil {
		p.steering = s
		for _, pair := range p.pairs {
			pair.steering = s
		}
	}
	r := c.sum(p, err)
	if err != nil {
		return r, fmt.Errorf("set rss: %w", err)
	}
	return r, nil
}

// steer gives lanes another hash and table.
func (c *change) steer(lanes []*Lane, s *Steering) error {
	same := map[*Steering]bool{} // few: pairs share theirs
	for _, l := range lanes {
		if _, known := same[l.steer]; !known {
			same[l.steer] = l.steer.sameBuckets(s)
		}
	}
	err := c.move(lanes, func(l *Lane) *Steering {
		if same[l.steer] {
			return s
		}
		return nil
	})
	if err != nil {
		return err
	}
	other := slices.DeleteFunc(slices.Clone(lanes), func(l *Lane) bool { return same[l.steer] })
	if err := c.adopt(other, s); err != nil {
		return err
	}
	if err := c.move(other, func(*Lane) *Steering { return s }); err != nil {
		return err
	}
	return c.each(lanes, func(_ *worker, own []*Lane) {
		for _, l := range own {
			l.steer = s
		}
	})
}

// Steering returns the hash and table of the pool; nil until one is set, or a pair is added with one.
func (p *Pool) Steering() *Steering {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steering
}
