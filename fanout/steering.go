package fanout

import (
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

// worker hashes f, which came from src, and returns its worker's ID.
func (s *Steering) worker(src port.Source, f *port.Frame) int {
	b := src.Bytes(f)
	if f.Flags&port.VNet != 0 {
		b = b[port.VNetHdrLen:]
	}
	f.Hash = s.hasher.Hash(b)
	return s.table.Worker(s.table.Bucket(f.Hash))
}
