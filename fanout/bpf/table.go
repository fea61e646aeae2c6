package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/rss"
)

// ErrSize says that a table isn't of the size that the programs' table has.
var ErrSize = errors.New("size of the table changes")

// Table is an indirection table that programs read: bucket → value. The value of a
// bucket is one word, which a program reads whole, old or new, at any time. The
// size stays, as bucket numbers mean something to fences and counters.
//
// Concurrency contract: all methods may be called from any goroutine.
type Table struct {
	mu    sync.Mutex
	m     *ebpf.Map
	words *words // what programs read: mask, then the values; nil when closed
	size  int
}

// NewTable makes a table of t's size: bucket → worker. It needs CAP_BPF.
func NewTable(t *rss.Table) (*Table, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, fmt.Errorf("read bpf objects: %w", err)
	}
	nt, err := newTable(spec.Maps[steerMapEpairTable], t)
	return nt, explain("create bpf table", err)
}

func newTable(spec *ebpf.MapSpec, from *rss.Table) (*Table, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	w, err := mapWords(m.FD(), int(spec.ValueSize)/4)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map memory of %s: %w", steerMapEpairTable, err), m.Close())
	}
	t := &Table{m: m, words: w, size: from.Size()}
	w.at(0).Store(uint32(t.size - 1))
	if err := t.Set(from, nil); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Set gives each bucket the value of the worker that owns it in from: values[worker], or
// the worker's number, if values is nil. It changes bucket after bucket, each as one
// word, and nothing, if it returns an error.
func (t *Table) Set(from *rss.Table, values []uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.words == nil {
		return fmt.Errorf("set table: %w", os.ErrClosed)
	}
	if from.Size() != t.size {
		return fmt.Errorf("set table: %w from %d to %d buckets (use one of %d)", ErrSize, t.size, from.Size(), t.size)
	}
	for b := range t.size {
		if w := from.Worker(b); values != nil && w >= len(values) {
			return fmt.Errorf("set table: bucket %d is worker %d's, which has no value (there are %d)", b, w, len(values))
		}
	}
	for b := range t.size {
		v := uint32(from.Worker(b))
		if values != nil {
			v = values[v]
		}
		t.words.at(1 + b).Store(v) // pairs with look_up in classify.h
	}
	return nil
}

// Close gives the table up. Loaded programs keep it. It is idempotent.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.words == nil {
		return nil
	}
	err := t.words.unmap()
	t.words = nil
	return errors.Join(err, t.m.Close())
}
