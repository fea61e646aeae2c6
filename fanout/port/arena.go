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
//
// The free buffers are a stack: the next frame goes where the last one was, which the
// caches still hold. Taking turns made 62-KB frames through a TAP a fifth dearer. The
// stack has one taker, so what it sees on top can't be taken and put back in
// between, and a compare-and-swap needs no count beside it.
//
// An Arena is a handle to the buffers. A receiver gets one of its own, by View: when it goes
// over to another worker, the handle is turned to that one's buffers, and the port need not know.
type Arena struct {
	*buffers
}

type buffers struct {
	mem  []byte
	next []uint32      // next[i] is one more than the free buffer under i, 0 at the bottom; written by whoever puts i
	top  atomic.Uint32 // one more than the buffer that was put last, 0 when none is free
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
	a := &Arena{&buffers{mem: mem, next: make([]uint32, n)}}
	for i := n - 1; i >= 0; i-- {
		a.Put(uint32(i))
	}
	return a, nil
}

// View returns another handle to the same buffers. What closes them is a.Close.
func (a *Arena) View() *Arena { return &Arena{a.buffers} }

// Turn makes a a handle to the buffers of to. No frame of a's may be in a buffer, and nobody
// may use a meanwhile.
func (a *Arena) Turn(to *Arena) { a.buffers = to.buffers }

// Get takes a free buffer. ok is false while all are in use: the caller leaves
// the frame where it is and tries again in a later turn. Only the owner calls it.
func (a *Arena) Get() (slot uint32, ok bool) {
	for {
		t := a.top.Load() // pairs with Put: what its caller did with the buffer is done, and next is written
		if t == 0 {
			return 0, false
		}
		if a.top.CompareAndSwap(t, a.next[t-1]) {
			return t - 1, true
		}
	}
}

// Buffer returns a buffer's memory. borrowed: valid until Put.
func (a *Arena) Buffer(slot uint32) []byte {
	i := int(slot) * BufferLen
	return a.mem[i : i+BufferLen : i+BufferLen]
}

// Put gives a buffer back, from any worker.
func (a *Arena) Put(slot uint32) {
	for {
		t := a.top.Load()
		a.next[slot] = t
		if a.top.CompareAndSwap(t, slot+1) { // pairs with Get
			return
		}
	}
}

// Len is the number of buffers.
func (a *Arena) Len() int { return len(a.next) }

// InUse counts the buffers that hold a frame. Only the owner calls it.
func (a *Arena) InUse() int {
	n := len(a.next)
	for t := a.top.Load(); t != 0; t = a.next[t-1] {
		n--
	}
	return n
}

// Close unmaps the buffers. No frame may be in them.
func (a *Arena) Close() error { return unix.Munmap(a.mem) }
