package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// Daemon holds the pairs of one configuration and the pool that forwards them.
//
// Concurrency contract: all methods may be called from any goroutine.
type Daemon struct {
	cfg   *epair.Config
	cpus  []int
	steer *fanout.Steering
	env   *epair.Env
	pool  *fanout.Pool
	ports *ports

	mu     sync.Mutex
	pairs  []*pair
	closed bool
}

// Load reads and checks a configuration file.
func Load(path string) (*epair.Config, error) {
	allowed, err := cpus.Allowed()
	if err != nil {
		return nil, err
	}
	return epair.Load(path, allowed)
}

// Start creates everything that cfg names and forwards. All or nothing.
func Start(ctx context.Context, cfg *epair.Config) (*Daemon, error) {
	set, err := poolCPUs(cfg)
	if err != nil {
		return nil, err
	}
	h, t, err := steeringOf(cfg, len(set))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", epair.ErrConfig, err)
	}
	d := &Daemon{cfg: cfg, cpus: set, steer: fanout.NewSteering(h, t)}
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
	d.pool, err = fanout.NewPool(fanout.Config{
		CPUs:  d.cpus,
		Sched: fanout.Sched{Policy: d.cfg.Pool.Policy, Priority: d.cfg.Pool.Priority},
	})
	if err != nil {
		return err
	}
	d.ports = newPorts(d.cfg, len(d.cpus))
	for _, c := range d.cfg.Pairs {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("start: %w", context.Cause(ctx))
		}
		p, err := d.add(c)
		if err != nil {
			return err
		}
		d.pairs = append(d.pairs, p)
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
		return nil, nil, err
	}
	t, err := rss.ParseTable(cmp.Or(r.Table, "equal"), 0, workers)
	return h, t, err
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

// Serve answers the API on ln until ctx ends.
func (d *Daemon) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // Serve returns what there is to say
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve api: %w", err)
	}
	return nil
}

// Close undoes everything: forwarding stops, ports close, what was created goes.
// It is idempotent.
func (d *Daemon) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	var ends []*epair.Pair
	for _, p := range slices.Backward(d.pairs) {
		errs = append(errs, d.detach(p))
		ends = append(ends, p.ends)
	}
	if d.pool != nil {
		errs = append(errs, d.pool.Close())
	}
	if d.ports != nil {
		errs = append(errs, d.ports.close())
	}
	if d.env != nil {
		errs = append(errs, d.env.DeleteAll(ends), d.env.Close())
	}
	return errors.Join(errs...)
}
