package fanout

import (
	"fmt"
	"reflect"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/rss"
)

// Steering decides which worker sends a frame: flow hash → bucket → worker. It
// is immutable; all lanes of a pair share one.
type Steering struct {
	hasher *rss.Hasher
	table  *rss.Table
}

// NewSteering joins a hash and an indirection table.
func NewSteering(h *rss.Hasher, t *rss.Table) *Steering { return &Steering{h, t} }

// Hasher returns the hash.
func (s *Steering) Hasher() *rss.Hasher { return s.hasher }

// Table returns the indirection table.
func (s *Steering) Table() *rss.Table { return s.table }

// sameBuckets tells whether s and o put every frame into the same bucket.
func (s *Steering) sameBuckets(o *Steering) bool {
	return s.table.Size() == o.table.Size() &&
		(s.hasher == o.hasher || reflect.DeepEqual(s.hasher.Config(), o.hasher.Config()))
}

// check refuses a table that names workers which the pool doesn't have.
func (s *Steering) check(workers int) error {
	if n := s.table.Workers(); n > workers {
		return fmt.Errorf("the table is for %d workers, the pool has %d", n, workers)
	}
	return nil
}

// hash computes the RSS hash of f, which came from src.
func hash(h *rss.Hasher, src port.Source, f *port.Frame) uint32 {
	b := src.Bytes(f)
	if f.Flags&port.VNet != 0 {
		b = b[port.VNetHdrLen:]
	}
	return h.Hash(b)
}
