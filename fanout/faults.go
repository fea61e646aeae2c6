package fanout

import (
	"slices"
	"sync"
	"time"
)

// Fault is something that doesn't move, or didn't.
type Fault struct {
	What  string    // names it, and what it was doing
	Since time.Time // when it was first seen not to move
	Until time.Time // when it moved again; zero: it hasn't yet
	Kicks int       // how often it was kicked
}

// watchdog is the state of the watch.
type watchdog struct {
	stop, done chan struct{}

	seen map[any]*sighting // the watchdog's own

	mu    sync.Mutex // guards what follows
	now   map[any]*Fault
	past  []Fault
	total uint64
}

// sighting is what was last seen of a thing.
type sighting struct {
	progress uint64
	still    int // looks without progress
	since    time.Time
	round    int
}

// Faults returns what is stuck, and the last that was, newest last; total is how many there were.
func (p *Pool) Faults() (now, past []Fault, total uint64) {
	d := &p.watch
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.now {
		now = append(now, *f)
	}
	slices.SortFunc(now, func(a, b Fault) int { return a.Since.Compare(b.Since) })
	return now, slices.Clone(d.past), d.total
}

// still tells whether something that has work makes no progress, and for how long already.
func (d *watchdog) still(round int, what any, progress uint64, work bool) bool {
	s := d.seen[what]
	if s == nil {
		if !work {
			return false
		}
		s = &sighting{progress: progress + 1}
		d.seen[what] = s
	}
	s.round = round
	if !work || s.progress != progress {
		s.progress, s.still, s.since = progress, 0, time.Now()
		return false
	}
	s.still++
	return s.still >= stuckAfter
}

// fault enters a fault, or that it goes on, and kicks it.
func (d *watchdog) fault(key any, what string, kick func()) {
	d.mu.Lock()
	f := d.now[key]
	if f == nil {
		f = &Fault{What: what, Since: d.seen[key].since}
		d.now[key] = f
		d.total++
	}
	f.Kicks++
	d.mu.Unlock()
	kick()
}

// note enters a fault that has been mended where it was found.
func (d *watchdog) note(round int, key any, what string) {
	if d.seen[key] == nil {
		d.seen[key] = &sighting{since: time.Now()}
	}
	d.seen[key].round, d.seen[key].still = round, stuckAfter
	d.fault(key, what, func() {})
}

// forget ends the faults of what moves again, or isn't there any more.
func (d *watchdog) forget(round int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, f := range d.now {
		s := d.seen[key]
		if _, once := key.(silent); once && s.round > round-2*int(lookEvery/watchEvery) {
			continue // it is asked once in lookEvery
		} else if !once && s.round == round && s.still >= stuckAfter {
			continue
		}
		f.Until = time.Now()
		delete(d.now, key)
		d.past = append(d.past, *f)
		if n := len(d.past) - pastFaults; n > 0 {
			d.past = slices.Delete(d.past, 0, n)
		}
	}
	for key, s := range d.seen {
		if s.round < round && d.now[key] == nil {
			delete(d.seen, key)
		}
	}
}
