package fanout

import (
	"time"

	"golang.org/x/sys/unix"
)

// idleRule says what a worker does between two turns; n frames moved in the last one.
type idleRule interface {
	turn(w *worker, n int)
}

// pollEvery is how many busy turns a worker makes before it asks the kernel
// which other ports have become ready: the system call then costs each batch a
// fourth, and a port that becomes ready waits for four turns at most.
const pollEvery = 4

// lookTurns is how many busy turns pass between two looks at the clock.
const lookTurns = 1024

// sleeper is the rule of the pool: sleep as soon as there is nothing to do.
type sleeper struct{ busy int }

func (s *sleeper) turn(w *worker, n int) {
	switch {
	case n > 0:
		if s.busy++; s.busy%pollEvery == 0 {
			w.ready(w.wait.Poll())
		}
		if s.busy%lookTurns == 0 {
			w.look()
		}
	case w.quiet():
		w.sleep()
	default:
		// A port waits for a buffer that another worker holds, who may want this CPU.
		w.ready(w.wait.Poll())
		w.yield()
	}
}

// PollerRule is how a poller shares its CPU. The zero value means the defaults.
type PollerRule struct {
	Spin  time.Duration // without a frame: poll this long before the CPU is offered to others at each poll
	Yield time.Duration // with frames: offer the CPU to others this often
	Idle  time.Duration // without a frame: sleep after this long
}

// Defaults of PollerRule. A poller that never yields starves the host it serves
// when they share a CPU, so the times are short against a scheduler's slice (3 ms).
const (
	DefaultSpin  = 20 * time.Microsecond
	DefaultYield = 500 * time.Microsecond
	DefaultIdle  = 10 * time.Millisecond
)

func (r PollerRule) withDefaults() PollerRule {
	if r.Spin == 0 {
		r.Spin = DefaultSpin
	}
	if r.Yield == 0 {
		r.Yield = DefaultYield
	}
	if r.Idle == 0 {
		r.Idle = DefaultIdle
	}
	return r
}

// clockEvery is how many turns pass between two looks at the clock.
const clockEvery = 16

// poller is the rule of a pair's own thread: never sleep while frames come.
type poller struct {
	PollerRule
	turns     int
	now       time.Time
	lastFrame time.Time
	lastYield time.Time
}

func (p *poller) turn(w *worker, n int) {
	if p.turns++; p.turns%clockEvery == 0 {
		p.now = time.Now()
	}
	if n > 0 {
		p.lastFrame = p.now
		if p.now.Sub(p.lastYield) >= p.Yield {
			p.offer(w)
		}
		return
	}
	switch quiet := p.now.Sub(p.lastFrame); {
	case quiet >= p.Idle:
		w.rest()
		w.sleep()
		w.readyAll()
		p.now = time.Now()
		p.lastFrame, p.lastYield = p.now, p.now
	case quiet >= p.Spin:
		p.offer(w)
		p.now = time.Now()
	}
}

func (p *poller) offer(w *worker) {
	w.yield()
	p.lastYield = p.now
}

// yield lets another thread that wants this CPU run first (sched_yield(2)).
func (w *worker) yield() {
	add(&w.stats.yields, 1)
	w.at.Store(nowhere)
	// Syscall, not RawSyscall: we may be away for a whole slice.
	unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// rest takes all lanes off the active list: each has just shown that it's empty,
// so its next frame makes its descriptor ready.
func (w *worker) rest() {
	for _, l := range w.active {
		l.active = false
	}
	w.active = w.active[:0]
}
