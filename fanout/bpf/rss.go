package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/rss"
)

// quick is what maps.h calls enum epair_quick.
type quick uint8

const (
	quickNone quick = iota
	quickAddrs
	quickAll
)

// RSS is the hash and the indirection table of the pool, in maps that programs read.
//
// Concurrency contract: all methods may be called from any goroutine. A program
// that runs meanwhile sees the whole old hash configuration or the whole new one,
// and of each bucket the old or the new value.
type RSS struct {
	mu      sync.Mutex
	inner   *ebpf.MapSpec // of a hash configuration
	hash    *ebpf.Map
	scratch *ebpf.Map
	table   *Table
}

// NewRSS makes the maps. It needs CAP_BPF.
func NewRSS(h *rss.Hasher, t *rss.Table) (*RSS, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, fmt.Errorf("read bpf objects: %w", err)
	}
	r := &RSS{inner: spec.Maps[steerMapEpairHash].InnerMap}
	if err := r.create(spec, h, t); err != nil {
		return nil, errors.Join(explain("create bpf maps", err), r.Close())
	}
	return r, nil
}

func (r *RSS) create(spec *ebpf.CollectionSpec, h *rss.Hasher, t *rss.Table) (err error) {
	if r.hash, err = ebpf.NewMap(spec.Maps[steerMapEpairHash]); err != nil {
		return err
	}
	if r.scratch, err = ebpf.NewMap(spec.Maps[steerMapEpairScratch]); err != nil {
		return err
	}
	if r.table, err = newTable(spec.Maps[steerMapEpairTable], t); err != nil {
		return err
	}
	return r.setHasher(h)
}

// SetHasher changes the hash. When it returns, no program uses the old one any more:
// it waits for those that run (an RCU grace period, some milliseconds). The hash of nearly
// every flow changes, so its bucket does: what must stay in order is fenced by the caller.
func (r *RSS) SetHasher(h *rss.Hasher) error {
	return explain("set hash", r.setHasher(h))
}

func (r *RSS) setHasher(h *rss.Hasher) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := ebpf.NewMap(r.inner)
	if err != nil {
		return err
	}
	defer m.Close() // r.hash holds it
	if err := m.Put(uint32(0), hasherOf(h)); err != nil {
		return err
	}
	return r.hash.Put(uint32(0), m)
}

// hasherOf returns h as the programs read it.
func hasherOf(h *rss.Hasher) *steerEpairHasher {
	c := &steerEpairHasher{
		Toeplitz: h.ToeplitzTable(), Func: uint8(h.Func()),
		Symmetric: asByte(h.Symmetric()), Inner: asByte(h.Inner()),
	}
	for t := range rss.FlowType(rss.NumFlowTypes) {
		c.Fields[t] = uint8(h.Fields(t))
	}
	for t := range c.Quick {
		c.Quick[t] = uint8(quickOf(h, rss.FlowType(t)))
	}
	return c
}

// quickOf says whether frames of a type may take the short way. What may be a
// tunnel must not, if tunnels are looked into.
func quickOf(h *rss.Hasher, t rss.FlowType) quick {
	const addrs = rss.Src | rss.Dst
	switch t {
	case rss.IP4, rss.IP6, rss.UDP4, rss.UDP6:
		if h.Inner() {
			return quickNone
		}
	}
	switch h.Fields(t) {
	case addrs:
		return quickAddrs
	case addrs | rss.Sport | rss.Dport:
		return quickAll
	}
	return quickNone
}

func asByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// SetTable changes the indirection table: bucket → worker. It keeps its size.
func (r *RSS) SetTable(t *rss.Table) error { return r.table.Set(t, nil) }

// Maps returns what a program that classifies frames by r's hash and t is loaded
// with, by the maps' names in maps.h; t nil is r's own table. borrowed: valid until Close.
func (r *RSS) Maps(t *Table) map[string]*ebpf.Map {
	if t == nil {
		t = r.table
	}
	return map[string]*ebpf.Map{steerMapEpairHash: r.hash, steerMapEpairScratch: r.scratch, steerMapEpairTable: t.m}
}

// Close gives the maps up. Loaded programs keep them. It is idempotent.
func (r *RSS) Close() error {
	var errs []error
	if r.table != nil {
		errs = append(errs, r.table.Close())
	}
	return errors.Join(append(errs, r.hash.Close(), r.scratch.Close())...) // nil maps close well
}
