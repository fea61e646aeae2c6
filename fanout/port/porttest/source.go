package porttest

import (
	"fmt"
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// Source is a port.Source in memory, which checks that each of its frames is
// released exactly once.
type Source struct {
	mem      [][]byte // virtio_net_hdr and frame
	released []atomic.Int32
}

// NewSource returns a Source of plain frames.
func NewSource(frames ...[]byte) *Source {
	s := &Source{released: make([]atomic.Int32, len(frames))}
	for _, f := range frames {
		s.mem = append(s.mem, append(make([]byte, port.VNetHdrLen), f...))
	}
	return s
}

// SetHdr gives the i-th frame a virtio_net_hdr.
func (s *Source) SetHdr(i int, h Hdr) { copy(s.mem[i], h[:]) }

// Frames returns all frames of the Source, as a Receive would.
func (s *Source) Frames() []port.Frame {
	b := make([]port.Frame, len(s.mem))
	for i, m := range s.mem {
		b[i] = port.Frame{Off: port.VNetHdrLen, Len: uint32(len(m) - port.VNetHdrLen), Slot: uint32(i), Flags: port.VNet}
	}
	return b
}

// Bytes returns a frame with its virtio_net_hdr.
func (s *Source) Bytes(f *port.Frame) []byte { return s.mem[f.Slot] }

// Release counts.
func (s *Source) Release(_ int, b []port.Frame) {
	for i := range b {
		s.released[b[i].Slot].Add(1)
	}
}

// Check says which frame was not released, or more than once.
func (s *Source) Check() error {
	for i := range s.released {
		if n := s.released[i].Load(); n != 1 {
			return fmt.Errorf("frame %d of %d was released %d times", i, len(s.released), n)
		}
	}
	return nil
}
