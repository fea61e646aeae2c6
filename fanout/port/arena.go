package port

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// BufferLen is the size of an arena buffer: the longest frame, its
// virtio_net_hdr and room to re-insert a VLAN tag, rounded up to pages.
const BufferLen = (MaxFrameLen + VNetHdrLen + 4 + 4095) &^ 4095

// Arena holds a worker's buffers for frames that fit no ring slot: what is
// read from a TAP, and GSO frames from a packet socket. One arena serves all ports
// of its worker, so its size doesn't grow with the number of pairs.
//
//	who            does
//	owner worker   Get, then fills the buffer
//	any worker     Bytes, and Put when the frame has left
type Arena struct {
	mem  []byte
	next int
	busy []atomic.Uint32 // 1 while a frame is in the buffer; written by the owner (0→1) and the releasing worker (1→0)
}

// NewArena maps n buffers and touches them, so that they are on the NUMA node
// of the calling thread.
func NewArena(n int) (*Arena, error) {
	mem, err := unix.Mmap(-1, 0, n*BufferLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d frame buffers: %w", n, err)
	}
	for i := 0; i < n; i++ {
		mem[i*BufferLen] = 0 // the first page of each; longer frames touch the rest on this thread too
	}
	return &Arena{mem: mem, busy: make([]atomic.Uint32, n)}, nil
}

// Get takes a free buffer. ok is false while all are in use: the caller leaves
// the frame where it is and tries again in a later turn. Only the owner calls it.
func (a *Arena) Get() (slot uint32, ok bool) {
	for range a.busy {
		i := a.next
		if a.next++; a.next == len(a.busy) {
			a.next = 0
		}
		if a.busy[i].Load() == 0 { // pairs with Put: the last reader is done
			a.busy[i].Store(1)
			return uint32(i), true
		}
	}
	return 0, false
}

// Buffer returns a buffer's memory. borrowed: valid until Put.
func (a *Arena) Buffer(slot uint32) []byte {
	i := int(slot) * BufferLen
	return a.mem[i : i+BufferLen : i+BufferLen]
}

// Put gives a buffer back, from any worker.
func (a *Arena) Put(slot uint32) { a.busy[slot].Store(0) } // pairs with Get

// Len is the number of buffers.
func (a *Arena) Len() int { return len(a.busy) }

// InUse counts the buffers that hold a frame.
func (a *Arena) InUse() int {
	n := 0
	for i := range a.busy {
		n += int(a.busy[i].Load())
	}
	return n
}

// Close unmaps the buffers. No frame may be in them.
func (a *Arena) Close() error { return unix.Munmap(a.mem) }
