package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// Daemon holds pairs and the pool that forwards them.
//
// Concurrency contract: all methods may be called from any goroutine. Questions don't wait for changes.
// Locks are taken in the order life, policy, registry.
type Daemon struct {
	cfg     *epair.Config
	env     *epair.Env
	pool    *fanout.Pool
	ports   *ports
	pairs   registry
	view    workersView
	hurry   *expediter
	kernel  kernel
	balance autoBalance

	// policy is held by who changes what concerns all pairs, and read-held by who adds or
	// changes one of them, which must get either the old or the new.
	policy sync.RWMutex
	cpus   []int                           // guarded by policy
	steer  *fanout.Steering                // guarded by policy
	rss    atomic.Pointer[fanout.Steering] // the same, for those who only ask

	life    sync.RWMutex // read-held by every change, so that Close comes after it
	closing atomic.Bool  // set before Close waits for life: long changes give up
	closed  bool         // guarded by life
}

// Load reads and checks a configuration file.
func Load(path string) (*epair.Config, error) {
	allowed, err := cpus.Allowed()
	if err != nil {
		return nil, err
	}
	cfg, err := epair.Load(path, allowed)
	if err != nil {
		return nil, err
	}
	set, err := poolCPUs(cfg)
	if err != nil {
		return nil, err
	}
	if _, _, err := steeringOf(cfg, len(set)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cfg, nil
}

// Start creates everything that cfg names and forwards. All or nothing.
func Start(ctx context.Context, cfg *epair.Config, options ...Option) (*Daemon, error) {
	set, err := poolCPUs(cfg)
	if err != nil {
		return nil, err
	}
	h, t, err := steeringOf(cfg, len(set))
	if err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg, cpus: set, hurry: newExpediter()}
	for _, o := range options {
		o(d)
	}
	d.setSteer(fanout.NewSteering(h, t))
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context) (err error) {
	// Each worker sends by a queue of its own.
	if d.env, err = epair.NewEnv(epair.EnvConfig{Queues: senders(len(d.cpus))}); err != nil {
		return err
	}
	if err := d.hurry.recover(); err != nil {
		return err
	}
	d.pool, err = fanout.NewPool(fanout.Config{
		CPUs:  d.cpus,
		Sched: fanout.Sched{Policy: d.cfg.Pool.Policy, Priority: d.cfg.Pool.Priority},
	})
	if err != nil {
		return err
	}
	d.ports = newPorts(d.cfg, len(d.cpus))
	if _, err := d.Add(ctx, d.cfg.Pairs); err != nil {
		return err
	}
	if d.cfg.RSS.Rebalance == "auto" {
		d.keepBalanced(autoEvery)
	}
	// What a crash left and this configuration doesn't name any more.
	_, err = epair.GC("")
	return err
}

// poolCPUs returns one CPU per worker.
func poolCPUs(cfg *epair.Config) ([]int, error) {
	if cfg.Pool.CPUs == "" {
		return cpus.Default()
	}
	return cpus.Parse(cfg.Pool.CPUs)
}

// steeringOf returns the hash and table that cfg names.
func steeringOf(cfg *epair.Config, workers int) (*rss.Hasher, *rss.Table, error) {
	r := cfg.RSS
	h, err := rss.New(rss.Config{Func: r.Func, Key: r.Key, Symmetric: r.Symmetric, Fields: r.Fields, Inner: r.Inner})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", epair.ErrConfig, err)
	}
	t, err := rss.ParseTable(cmp.Or(r.Table, "equal"), 0, workers)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", epair.ErrConfig, err)
	}
	return h, t, nil
}

// SteeringOf returns the hash and table that a configuration file names.
func SteeringOf(path string) (*rss.Hasher, *rss.Table, error) {
	cfg, err := Load(path)
	if err != nil {
		return nil, nil, err
	}
	set, err := poolCPUs(cfg)
	if err != nil {
		return nil, nil, err
	}
	return steeringOf(cfg, len(set))
}

// Close undoes everything: forwarding stops, ports close, what was created goes, but for persistent pairs.
// It waits for changes that are under way, and is idempotent.
func (d *Daemon) Close() error {
	d.closing.Store(true) // pairs with Add
	d.balance.close()     // before the lock that a rebalancing needs, too
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	if d.env != nil {
		errs = append(errs, d.remove(d.pairs.all(), (*pair).persistent))
	}
	if d.pool != nil {
		errs = append(errs, d.pool.Close())
	}
	if d.ports != nil {
		errs = append(errs, d.ports.close())
	}
	errs = append(errs, d.kernel.close())
	if d.env != nil {
		errs = append(errs, d.env.Close())
	}
	return errors.Join(errs...)
}

// begin starts a change, which ends with d.life.RUnlock.
func (d *Daemon) begin() error {
	d.life.RLock()
	if d.closed || d.closing.Load() {
		d.life.RUnlock()
		return ErrStopping
	}
	return nil
}

// setSteer makes s what pairs are steered by. d.policy is held, or d isn't shared yet.
func (d *Daemon) setSteer(s *fanout.Steering) {
	d.steer = s
	d.rss.Store(s)
}
