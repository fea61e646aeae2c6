package fanout

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epair-net/epair/internal/wake"
)

// ErrClosed says that the pool, or the worker, has stopped.
var ErrClosed = os.ErrClosed

// Config describes a pool.
type Config struct {
	CPUs  []int // one worker each; a CPU may be named twice, for tests with more workers than cores
	Sched Sched
	Name  string // of the threads: NAME/w0 …; default "epair"
}

// Pool is the fixed set of workers that all pairs share.
//
// Concurrency contract: all methods may be called from any goroutine.
type Pool struct {
	cfg     Config
	workers []*worker
	lanes   atomic.Pointer[[]*Lane]   // by Lane.id; replaced, never changed
	threads atomic.Pointer[[]*worker] // all, for the watchdog; replaced, never changed

	mu       sync.Mutex // serialises all changes
	pairs    []*Pair
	added    int             // pairs ever added
	pollers  map[int]*worker // by their ID for ports
	steering *Steering       // what was last set for all; before, that of the first pair
	closed   bool

	base   time.Time
	giveUp time.Duration // of changes
	fence  fenceStats
	watch  watchdog
}

// NewPool starts a worker on each CPU of cfg.
func NewPool(cfg Config) (*Pool, error) {
	if len(cfg.CPUs) == 0 {
		return nil, errors.New("start pool: no CPUs (name at least one)")
	}
	if err := cfg.Sched.Validate(); err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = "epair"
	}
	p := &Pool{cfg: cfg, pollers: map[int]*worker{}, giveUp: giveUp, base: time.Now()}
	p.lanes.Store(&[]*Lane{})
	for i, cpu := range cfg.CPUs {
		w, err := p.newWorker(i, cpu, fmt.Sprintf("%s/w%d", cfg.Name, i), &sleeper{})
		if err != nil {
			return nil, errors.Join(err, p.stopWorkers())
		}
		w.in, w.touch = make([]*ring, len(cfg.CPUs)), make([]bool, len(cfg.CPUs))
		if err := w.start(cfg.Sched); err != nil {
			return nil, errors.Join(err, w.wait.Close(), p.stopWorkers())
		}
		p.workers = append(p.workers, w)
	}
	if err := p.connect(); err != nil {
		return nil, errors.Join(err, p.stopWorkers())
	}
	p.reserveThreads()
	p.listThreads()
	p.startWatch()
	return p, nil
}

// listThreads lets the watchdog know all threads.
func (p *Pool) listThreads() {
	all := slices.Clone(p.workers)
	for _, w := range p.pollers {
		all = append(all, w)
	}
	p.threads.Store(&all)
}

// newWorker makes a worker that has yet to be started.
func (p *Pool) newWorker(id, cpu int, name string, idle idleRule) (*worker, error) {
	wait, err := wake.New()
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	return &worker{
		id: id, portID: id, cpu: cpu, name: name, idle: idle, wait: wait, done: make(chan struct{}), base: p.base,
		lanes: func() []*Lane { return *p.lanes.Load() },
	}, nil
}

// connect tells each worker its peers and the producing ends of their rings.
func (p *Pool) connect() error {
	for x, w := range p.workers {
		out := make([]*ring, len(p.workers))
		for y, peer := range p.workers {
			out[y] = peer.in[x]
		}
		if err := w.do(func() error { w.out, w.peers = out, p.workers; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// reserveThreads lets the runtime run every worker and poller at once, and two
// more goroutines beside them: the API and the collector must not wait for
// a worker that spins.
func (p *Pool) reserveThreads() {
	if n := len(p.workers) + len(p.pollers) + 2; n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

// Pairs returns the pairs that are attached now.
func (p *Pool) Pairs() []*Pair {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pairs)
}

// Close removes all pairs and stops the workers. It is idempotent.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.stopWatch()
	var errs []error
	for len(p.pairs) > 0 {
		errs = append(errs, p.remove(p.pairs[len(p.pairs)-1]))
	}
	return errors.Join(append(errs, p.stopWorkers())...)
}

func (p *Pool) stopWorkers() error {
	var errs []error
	for _, w := range p.workers {
		errs = append(errs, w.stop())
	}
	return errors.Join(errs...)
}

// enter finds a free lane ID and enters l under it.
func (p *Pool) enter(l *Lane) {
	old := *p.lanes.Load()
	id := slices.Index(old, nil)
	if id < 0 {
		id = len(old)
	}
	table := make([]*Lane, max(len(old), id+1))
	copy(table, old)
	l.id, table[id] = uint32(id), l
	p.lanes.Store(&table) // before the reader starts: a worker that takes a frame finds its lane
}

// leave frees l's ID. No frame of l may be on a ring.
func (p *Pool) leave(l *Lane) {
	table := slices.Clone(*p.lanes.Load())
	table[l.id] = nil
	p.lanes.Store(&table)
}
