package fanout

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/internal/wake"
)

// budget is the most frames of one port, or of one ring, that a worker moves before it
// looks at the next: one pair can't starve another, least of all the next pair
// of a routed chain.
const budget = port.MaxBatch

// arenaBuffers is how many frames that fit no ring slot a worker can hold: four
// batches, so that a full hand-over doesn't stop the next receive.
const arenaBuffers = 4 * port.MaxBatch

// worker is one CPU-bound thread. The fields above mail belong to it alone while
// it runs.
type worker struct {
	id     int // its index in a lane's txs and cells; a poller's is behind the pool's workers
	portID int // by which ports know it: no two pollers have the same
	cpu    int
	name   string
	idle   idleRule
	spins  bool // lanes stay active when they are empty: a poller looks again at once

	wait   *wake.Waiter
	arena  *port.Arena
	in     []*ring // in[x]: frames that worker x hands to this one; nil for itself
	out    []*ring // out[y] = worker y's in[id]
	lanes  func() []*Lane
	byTok  []*Lane   // lanes this worker reads, by wake token
	looked time.Time // when all of them were last asked
	active []*Lane   // of these, the ones whose Receive may have more

	batch [port.MaxBatch]port.Frame // received in this turn
	own   [port.MaxBatch]port.Frame // of these, what this worker sends itself
	lost  [port.MaxBatch]port.Frame // of these, what found no room
	moved [port.MaxBatch]port.Frame // taken from a ring
	touch []bool                    // workers that something was staged for
	peers []*worker
	d     delta
	tally
	base time.Time // what stamps count from; all workers of a pool have the same
	log  *moveLog  // of the change that is under way, or was last

	stopping bool
	done     chan struct{}

	mail   mailbox
	tid    atomic.Int32
	beat   atomic.Uint64 // grows with the turns
	at     atomic.Uint64 // what it is in: see enter
	asleep atomic.Bool
	stats  counters
	shown  shown
}

// counters are what is seldom enough to be counted for others to see at once. Written by the worker.
type counters struct {
	sleeps, wakes, yields atomic.Uint64
}

// start runs the worker on a thread of its own, pinned to its CPU, and returns when it is ready.
func (w *worker) start(sched Sched) error {
	ready := make(chan error, 1)
	ownThread(func() {
		err := w.setUp(sched)
		ready <- err
		if err == nil {
			w.run()
		}
		close(w.done)
	})
	return <-ready
}

// ownThread calls f on a thread that is f's alone: its name, CPU and policy die with it.
// The process's first thread can't die, and its name is the process's, so it is
// kept busy until f has another one.
func ownThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // locked: the thread ends
		}
		started := make(chan struct{})
		ownThread(func() { close(started); f() })
		<-started
		runtime.UnlockOSThread()
	}()
}

func (w *worker) setUp(sched Sched) (err error) {
	if err := setThread(w.name, w.cpu, sched); err != nil {
		return err
	}
	w.tid.Store(int32(unix.Gettid()))
	if w.arena, err = port.NewArena(arenaBuffers); err != nil {
		return err
	}
	for x := range w.in {
		if x != w.id {
			w.in[x] = newRing()
		}
	}
	return nil
}

// run is the worker's loop.
func (w *worker) run() {
	for {
		if w.mail.pending.Load() {
			w.readMail()
			if w.stopping {
				return // before it can sleep: nobody would wake it
			}
		}
		n := w.drain() + w.serve()
		w.idle.turn(w, n)
		w.turned(n)
	}
}

// serve lets each active lane receive one batch.
func (w *worker) serve() int {
	total := 0
	for i := 0; i < len(w.active); {
		l := w.active[i]
		n, more := w.receive(l)
		total += n
		if l.probed {
			w.answered(l, n)
		}
		if more || w.spins && !l.gone.Load() {
			i++
			continue
		}
		l.active = false
		last := len(w.active) - 1
		w.active[i] = w.active[last]
		w.active = w.active[:last]
	}
	return total
}

// ready puts the lanes of tokens on the active list.
func (w *worker) ready(tokens []int32) {
	for _, t := range tokens {
		if l := w.byTok[t]; l != nil {
			w.activate(l)
		}
	}
}

// quiet tells whether nothing is left to do but wait.
func (w *worker) quiet() bool {
	if len(w.active) > 0 || w.mail.pending.Load() {
		return false
	}
	for _, r := range w.in {
		if r != nil && !r.empty() {
			return false
		}
	}
	return true
}

// lookEvery is how often every port is asked, whether its descriptor told or not: a
// port notices some faults of its device only then.
const lookEvery = time.Second

// sleep waits until a port is ready, a frame is handed over or a call is posted.
func (w *worker) sleep() {
	w.wait.Arm()
	if !w.quiet() {
		w.wait.Disarm()
		return
	}
	add(&w.stats.sleeps, 1)
	w.asleep.Store(true)
	told := w.wait.Sleep(lookEvery)
	w.asleep.Store(false)
	w.ready(told)
	w.look()
}

// look puts all lanes on the active list once in lookEvery, and notes which of them hadn't told.
func (w *worker) look() {
	now := time.Now()
	w.show(now)
	if now.Sub(w.looked) < lookEvery {
		return
	}
	w.looked = now
	w.ready(w.wait.Poll())
	for _, l := range w.byTok {
		if l != nil && !l.gone.Load() && !l.active {
			l.probed = true
			w.activate(l)
		}
	}
}

// readyAll puts all lanes on the active list whose device is still there.
func (w *worker) readyAll() {
	for _, l := range w.byTok {
		if l != nil && !l.gone.Load() {
			w.activate(l)
		}
	}
}

func (w *worker) activate(l *Lane) {
	if !l.active {
		l.active = true
		w.active = append(w.active, l) // capacity is len(byTok): never grows here
	}
}
