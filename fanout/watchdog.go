package fanout

import (
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/fanout/port"
)

// The watchdog looks at all workers, rings and ports from a goroutine of its own, and finds
// what has work and doesn't move:
//
//	what        sign                                              what is done
//	worker      makes no turn, and doesn't sleep                  it is woken; its place is named
//	ring        holds frames, and none was taken                  its worker is kicked
//	port, in    had frames that its descriptor didn't tell of     its worker takes them (look)
//	port, out   holds frames, and none has left                   its worker is kicked
//
// A kick makes the worker ask all its ports, also if its state says that it's awake.

const (
	// watchEvery is how often the watchdog looks. What hasn't moved in stuckAfter looks is stuck: it is
	// named after at most (stuckAfter+1) · watchEvery, 1.6 s.
	watchEvery = 400 * time.Millisecond
	stuckAfter = 3
	// pastFaults is how many faults that are over are remembered.
	pastFaults = 32
)

// startWatch starts the watchdog.
func (p *Pool) startWatch() {
	d := &p.watch
	d.stop, d.done = make(chan struct{}), make(chan struct{})
	d.seen, d.now = map[any]*sighting{}, map[any]*Fault{}
	go func() {
		defer close(d.done)
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for round := 1; ; round++ {
			select {
			case <-d.stop:
				return
			case <-t.C:
				p.lookAround(round)
			}
		}
	}()
}

func (p *Pool) stopWatch() {
	if p.watch.stop != nil {
		close(p.watch.stop)
		<-p.watch.done
		p.watch.stop = nil
	}
}

// lookAround looks at everything once.
func (p *Pool) lookAround(round int) {
	lanes := *p.lanes.Load()
	for _, w := range *p.threads.Load() {
		p.lookAtWorker(round, w, lanes)
	}
	for _, l := range lanes {
		if l != nil {
			p.lookAtPorts(round, l)
		}
	}
	p.watch.forget(round)
}

func (p *Pool) lookAtWorker(round int, w *worker, lanes []*Lane) {
	if w.asleep.Load() {
		// It wakes once a second by itself, so it makes turns also then.
	} else if d := &p.watch; d.still(round, w, w.beat.Load(), true) {
		d.fault(w, w.doing(lanes), w.kick)
	}
	for x, r := range w.in {
		if r == nil {
			continue
		}
		if n := r.len(); p.watch.still(round, r, r.head.Load(), n > 0) {
			p.watch.fault(r, fmt.Sprintf("ring w%d→w%d holds %d frames that %s doesn't take", x, w.id, n, w.name), w.kick)
		}
	}
}

// doing names what w is in.
func (w *worker) doing(lanes []*Lane) string {
	at := w.at.Load()
	if i := int(at >> 1); i > 0 && i <= len(lanes) && lanes[i-1] != nil {
		l := lanes[i-1]
		if at&1 == sending {
			return fmt.Sprintf("worker %s doesn't come back from sending by port %s of pair %s", w.name, l.far(), l.pair)
		}
		return fmt.Sprintf("worker %s doesn't come back from receiving from port %s of pair %s", w.name, l.near(), l.pair)
	}
	return fmt.Sprintf("worker %s makes no turn", w.name)
}

// What a worker is in, beside the lane.
const (
	receiving = 0
	sending   = 1
	nowhere   = 0 // without a lane: in no port
)

// enter notes what w is in, for the watchdog.
func (w *worker) enter(l *Lane, what uint64) { w.at.Store(uint64(l.id+1)<<1 | what) }

// silent and held tell a lane's faults apart.
type (
	silent struct{ *Lane }
	held   struct {
		*Lane
		worker int
	}
)

func (p *Pool) lookAtPorts(round int, l *Lane) {
	d := &p.watch
	if n := l.silent.Load(); n > 0 && !l.gone.Load() {
		what := fmt.Sprintf("port %s of pair %s had frames that its descriptor didn't tell of", l.near(), l.pair)
		d.note(round, silent{l}, what)
		l.silent.Store(0)
	}
	for i := range l.cells {
		c := &l.cells[i]
		n, w := c.queued.Load(), p.workerOf(l, i)
		if n > 0 && w != nil && d.still(round, held{l, i}, c.tx.Load(), true) {
			what := fmt.Sprintf("port %s of pair %s holds %d frames of %s that don't leave", l.far(), l.pair, n, w.name)
			d.fault(held{l, i}, what, w.kick)
		}
	}
}

// workerOf returns the worker whose cell is l.cells[i].
func (p *Pool) workerOf(l *Lane, i int) *worker {
	if i < len(p.workers) {
		return p.workers[i]
	}
	return l.reader.Load()
}

// kick makes w ask all its ports and its rings, whatever its state says.
func (w *worker) kick() {
	w.mail.mu.Lock()
	defer w.mail.mu.Unlock()
	if w.mail.closed {
		return // its descriptors may be closed
	}
	if !w.mail.pending.Load() { // a worker that doesn't read them gets no more
		w.mail.calls = append(w.mail.calls, w.readyAll)
		w.mail.pending.Store(true)
	}
	_ = w.wait.Kick() // can fail only if the descriptor is closed
}

// answered tells what came of asking a port whose descriptor hadn't told anything.
func (w *worker) answered(l *Lane, n int) {
	l.probed = false
	if n == 0 {
		return
	}
	for range 3 { // a frame that came just now is told of a moment later
		told := w.wait.Poll()
		if w.ready(told); slices.Contains(told, l.token) || len(told) == port.MaxBatch {
			return
		}
		w.yield()
	}
	l.silent.Add(1)
}
