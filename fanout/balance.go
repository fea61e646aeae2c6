package fanout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/rss"
)

const (
	// measureFor is how long Rebalance measures.
	measureFor = 200 * time.Millisecond
	// minFrames is how many frames a plan needs: fewer say nothing of what comes.
	minFrames = 1000
	// elephantShare is the share of a lane's load from which on a flow is named.
	elephantShare = 0.1
)

// Loads is the load of each bucket of the pool's table, over all pairs that are spread by it: frames and
// bytes, as a worker's time goes to them.
type Loads struct {
	Steering *Steering
	Buckets  []uint64 // one unit is the time that a byte of a long frame takes, 0.67 ns with packet sockets
	Frames   uint64
	Over     time.Duration
}

// Elephant is a flow with much of a lane's load.
type Elephant struct {
	Pair, Way string  // of the pair NAME, ab or ba
	Flow      string  // as the frame has it: type, source, destination
	Share     float64 // at least, of what the same worker received of this way's load
	Hash      uint32
	Bucket    int
	Worker    int // that sends it
}

// Rebalance is what a rebalancing did, or would do.
type Rebalance struct {
	rss.Plan
	Measured  Loads
	Elephants []Elephant
	Done      bool // the plan's table is in force
	Change    Change
}

// lanesBy returns the lanes that are spread by s.
func (p *Pool) lanesBy(s *Steering) []*Lane {
	return slices.DeleteFunc(p.steered(), func(l *Lane) bool { return l.steer != s })
}

// count is what a lane's buckets had at one moment. first tells two sets of buckets apart.
type count struct {
	first   *bucket
	buckets []bucket
}

// counts copies the buckets of lanes.
func (c *change) counts(lanes []*Lane) (map[*Lane]count, error) {
	all := map[*Lane]count{}
	err := c.each(lanes, func(_ *worker, own []*Lane) {
		for _, l := range own {
			all[l] = count{&l.buckets[0], slices.Clone(l.buckets)}
		}
	})
	return all, err
}

// Measure measures the load of the pool's buckets for a time.
func (p *Pool) Measure(d time.Duration) (Loads, error) {
	before, s, start, err := p.snapshot()
	if err != nil {
		return Loads{}, fmt.Errorf("measure loads: %w", err)
	}
	time.Sleep(d)
	after, now, end, err := p.snapshot()
	if err != nil {
		return Loads{}, fmt.Errorf("measure loads: %w", err)
	}
	sum := Loads{Steering: s, Over: end.Sub(start)}
	if s == nil {
		return sum, nil
	}
	sum.Buckets = make([]uint64, s.table.Size())
	if now != s {
		return sum, nil // all was changed meanwhile: nothing is known of it
	}
	for l, a := range after {
		b, ok := before[l]
		if !ok || b.first != a.first {
			continue // it was added, or got other buckets
		}
		for i := range a.buckets {
			frames := a.buckets[i].frames - b.buckets[i].frames
			sum.Frames += frames
			sum.Buckets[i] += frames*frameCost + a.buckets[i].bytes - b.buckets[i].bytes
		}
	}
	return sum, nil
}

// snapshot copies the buckets of all lanes that the pool's table spreads.
func (p *Pool) snapshot() (map[*Lane]count, *Steering, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, time.Time{}, ErrClosed
	}
	all, err := p.newChange().counts(p.lanesBy(p.steering))
	return all, p.steering, time.Now(), err
}

// Rebalance measures the load of each bucket, which takes 200 ms, plans a better table and, unless
// dry is set, puts it in force if it's worth it. All pairs that are spread by the pool's table get it, fenced
// as by SetSteering.
func (p *Pool) Rebalance(dry bool) (Rebalance, error) {
	r := Rebalance{}
	var err error
	if r.Measured, err = p.Measure(measureFor); err != nil {
		return r, fmt.Errorf("rebalance: %w", err)
	}
	s := r.Measured.Steering
	if s == nil {
		r.Verdict = "no pair is in mode pool"
		return r, nil
	}
	if r.Plan, err = rss.Balance(s.table, r.Measured.Buckets, rss.BalanceRule{}); err != nil {
		return r, fmt.Errorf("rebalance: %w", err)
	}
	if r.Elephants, err = p.Elephants(); err != nil {
		return r, fmt.Errorf("rebalance: %w", err)
	}
	if n := r.Measured.Frames; n < minFrames {
		r.Worth, r.Verdict = false, fmt.Sprintf("only %d frames came in %v, too few to tell", n, measureFor)
	}
	if dry || !r.Worth {
		return r, nil
	}
	r.Change, r.Done, err = p.replace(s, NewSteering(s.hasher, r.Table))
	if err == nil && !r.Done {
		r.Verdict = "the table was changed meanwhile"
	}
	return r, err
}

// replace puts the steering s in the place of old, if that is still the pool's.
func (p *Pool) replace(old, s *Steering) (Change, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Change{}, false, fmt.Errorf("rebalance: %w", ErrClosed)
	}
	if p.steering != old {
		return Change{}, false, nil
	}
	c := p.newChange()
	err := c.steer(p.lanesBy(old), s)
	r := c.sum(p, err)
	if err != nil {
		return r, false, fmt.Errorf("rebalance: %w", err)
	}
	p.steering = s
	for _, pair := range p.pairs {
		if pair.steering == old {
			pair.steering = s
		}
	}
	return r, true, nil
}

// Elephants returns the flows that make up a tenth or more of their lane's load, greatest share
// first, of the pairs in mode pool. What it says of a lane is of its last half a million frames or so.
func (p *Pool) Elephants() ([]Elephant, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("find elephants: %w", ErrClosed)
	}
	var all []Elephant
	err := p.newChange().each(p.steered(), func(_ *worker, own []*Lane) {
		for _, l := range own {
			all = append(all, l.elephants()...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("find elephants: %w", err)
	}
	slices.SortStableFunc(all, func(a, b Elephant) int { return cmp.Compare(b.Share, a.Share) })
	return all, nil
}

// elephants runs on the reader.
func (l *Lane) elephants() []Elephant {
	var all []Elephant
	for i := range l.flows {
		k := &l.flows[i]
		share := float64(k.load-k.above) / float64(max(l.total, 1))
		if k.len == 0 || share < elephantShare {
			continue
		}
		e := Elephant{Pair: l.pair, Way: l.near() + l.far(), Share: share, Hash: k.hash, Bucket: l.steer.table.Bucket(k.hash)}
		e.Worker = int(l.buckets[e.Bucket].worker)
		x := l.steer.hasher.Explain(k.head[:k.len])
		switch {
		case x.Hash != k.hash:
			e.Flow = "headers longer than are kept"
		case x.Source != "":
			e.Flow = fmt.Sprintf("%s %s → %s", x.Type, x.Source, x.Destination)
		default:
			e.Flow = x.Type
		}
		all = append(all, e)
	}
	return all
}
