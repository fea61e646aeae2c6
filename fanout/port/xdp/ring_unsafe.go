package xdp

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is one of the four rings of a socket, as it is mapped. T is uint64, the
// address of a chunk, for fill and completion, and a descriptor for rx and tx.
//
// The indices run freely and are masked when used. Each side publishes its own
// once per batch and keeps what it has seen of the other's.
type ring[T uint64 | unix.XDPDesc] struct {
	producer *atomic.Uint32 // fill and tx: written by us; rx and completion: by the kernel
	consumer *atomic.Uint32 // the other way round
	flags    *atomic.Uint32 // written by the kernel; fill and tx only
	desc     []T            // a power of two
	mask     uint32
	mem      []byte
}

// newRing gives a socket a ring of n entries and maps it. kind is the socket option, pgoff
// where the kernel offers it for mapping, off where its parts are.
func newRing[T uint64 | unix.XDPDesc](fd, kind int, pgoff int64, off *unix.XDPRingOffset, n int) (ring[T], error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, kind, n); err != nil {
		return ring[T]{}, fmt.Errorf("make a ring of %d entries: %w", n, err)
	}
	size := int(off.Desc) + n*int(unsafe.Sizeof(*new(T)))
	mem, err := unix.Mmap(fd, pgoff, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring[T]{}, fmt.Errorf("map a ring of %d entries: %w", n, err)
	}
	return viewRing[T](mem, off, n), nil
}

// viewRing interprets mapped memory as a ring of n entries.
//
// The expressions are valid because the kernel's offsets lie within the mapping that was made
// that long for them, in front of n entries; it aligns the index words to cache lines
// and the entries to their size (struct xdp_ring); and mem is not Go memory, so that nothing moves
// it while it is mapped.
func viewRing[T uint64 | unix.XDPDesc](mem []byte, off *unix.XDPRingOffset, n int) ring[T] {
	return ring[T]{
		producer: (*atomic.Uint32)(unsafe.Pointer(&mem[off.Producer])),
		consumer: (*atomic.Uint32)(unsafe.Pointer(&mem[off.Consumer])),
		flags:    (*atomic.Uint32)(unsafe.Pointer(&mem[off.Flags])),
		desc:     unsafe.Slice((*T)(unsafe.Pointer(&mem[off.Desc])), n),
		mask:     uint32(n - 1),
		mem:      mem,
	}
}

// at returns the entry of a free-running index.
func (r *ring[T]) at(i uint32) *T { return &r.desc[i&r.mask] }

// needsWakeup tells whether the kernel wants a system call to look at the ring.
func (r *ring[T]) needsWakeup() bool {
	return r.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 // pairs with xsk_set_*_need_wakeup
}

// close unmaps the ring. The socket holds its device as long as it is mapped.
func (r *ring[T]) close() error {
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	return unix.Munmap(mem)
}
