package kern

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/epair-net/epair/fanout/bpf"
	"github.com/epair-net/epair/rss"
)

// Policy is the pool as crossings see it: hash and table in maps that all their programs
// share, and the CPU of each worker.
//
// Concurrency contract: all methods may be called from any goroutine.
type Policy struct {
	rss *bpf.RSS
	cpu *bpf.Table // bucket → slot: CPU number + 1

	shared shared

	mu    sync.Mutex
	table *rss.Table
	cpus  []int
}

// NewPolicy makes the maps. cpus[w] is the CPU of worker w. It needs CAP_BPF.
func NewPolicy(h *rss.Hasher, t *rss.Table, cpus []int) (*Policy, error) {
	r, err := bpf.NewRSS(h, t)
	if err != nil {
		return nil, err
	}
	c, err := bpf.NewTable(t)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	p := &Policy{rss: r, cpu: c}
	if err := p.SetTable(t, cpus); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// RSS is the hash. borrowed: valid until Close.
func (p *Policy) RSS() *bpf.RSS { return p.rss }

// Slots is the table bucket → slot, to load programs with (bpf.RSS.Maps). A slot is a CPU
// number + 1. borrowed: valid until Close.
func (p *Policy) Slots() *bpf.Table { return p.cpu }

// CPUs returns the CPU of each worker.
func (p *Policy) CPUs() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.cpus)
}

// SetTable changes the indirection table and the CPUs of the workers. Programs see it at once;
// each crossing moves a bucket when nothing of it is in flight.
func (p *Policy) SetTable(t *rss.Table, cpus []int) error {
	slots := make([]uint32, len(cpus))
	for i, c := range cpus {
		slots[i] = uint32(c) + 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cpu.Set(t, slots); err != nil {
		return fmt.Errorf("set table: %w", err)
	}
	p.table, p.cpus = t, slices.Clone(cpus)
	return nil
}

// SetHasher changes the hash. It changes the bucket of nearly every flow: for order's sake the
// caller first gives all buckets to one worker by SetTable and waits until no crossing has
// a bucket Moving; and before it gives them to others again, it lets each crossing Drain: frames of a flow that were
// counted for its old bucket don't hold back the new one.
func (p *Policy) SetHasher(h *rss.Hasher) error { return p.rss.SetHasher(h) }

// Close gives the maps up; programs that are loaded keep them. It is idempotent.
func (p *Policy) Close() error {
	return errors.Join(append(p.shared.close(), p.cpu.Close(), p.rss.Close())...)
}
