package fanout

import (
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// entry is a frame on its way to another worker.
type entry struct {
	port.Frame
	lane uint32
	_    uint32 // two entries to a cache line
}

// ringSize bounds a hand-over ring: 16 full batches, about 1.5 ms of a worker's
// time. A longer ring would only be a longer queue.
const ringSize = 1024

// ring hands frames from one worker to one other, first in, first out.
//
//	producer                    consumer
//	push     stages an entry    peek     the published entries, in place
//	publish  shows what's       advance  frees the entries that were read
//	         staged
//
// Words of the two sides lie on different cache lines, and each side keeps a
// copy of the other's, so that a busy ring costs one cache miss per batch.
type ring struct {
	buf []entry
	_   [64]byte

	tail    atomic.Uint64 // entries published; written by the producer
	staged  uint64        // entries pushed; the producer's own
	free    uint64        // producer's copy of head
	batches uint64        // that were published; the producer's own
	_       [32]byte

	head atomic.Uint64 // entries read; written by the consumer
	seen uint64        // consumer's copy of tail
	_    [48]byte

	// One batch now and then is timed: seldom enough that the line stays in both caches.
	stamp   atomic.Uint64 // position behind it; 0: none is under way. Set by the producer, cleared by the consumer
	stamped atomic.Int64  // when it was published
	_       [48]byte
}

// newRing returns an empty ring. The consumer allocates it, and touches it, so that it lies on its node.
func newRing() *ring {
	r := &ring{buf: make([]entry, ringSize)}
	clear(r.buf)
	return r
}

// push stages e; false means that the ring is full.
func (r *ring) push(e entry) bool {
	if r.staged-r.free == ringSize {
		r.free = r.head.Load() // pairs with advance: the slots below are no longer read
		if r.staged-r.free == ringSize {
			return false
		}
	}
	r.buf[r.staged&(ringSize-1)] = e
	r.staged++
	return true
}

// publish shows the staged entries to the consumer.
func (r *ring) publish() { r.tail.Store(r.staged) } // pairs with peek

// peek returns at most max published entries that lie in one piece.
// borrowed: valid until advance.
func (r *ring) peek(max int) []entry {
	h := r.head.Load() // our own word
	if r.seen == h {
		if r.seen = r.tail.Load(); r.seen == h { // pairs with publish: the entries below are written
			return nil
		}
	}
	i := int(h & (ringSize - 1))
	n := min(int(r.seen-h), max, ringSize-i)
	return r.buf[i : i+n]
}

// advance frees the first n entries of peek.
func (r *ring) advance(n int) { r.head.Store(r.head.Load() + uint64(n)) } // pairs with push

// empty tells the consumer whether nothing is published.
func (r *ring) empty() bool { return r.tail.Load() == r.head.Load() }

// len is the number of published entries that weren't read yet. Any goroutine may ask.
func (r *ring) len() int {
	h := r.head.Load() // before tail, so that the difference is never negative
	return int(r.tail.Load() - h)
}
