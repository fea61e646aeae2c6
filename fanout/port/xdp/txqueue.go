package xdp

import (
	"golang.org/x/sys/unix"
)

// txQueue is the transmitting side of one queue: its tx ring and its completion ring.
//
// The kernel reads the tx ring only inside kick, as the sockets are bound in copy mode and
// nobody polls this one. So what it hasn't taken can be changed, and taken back. What it may have seen
// of the producer index must not go back, though: there, taking back leaves holes, descriptors
// that the kernel skips. The next frames are written over them.
//
//	next ≤ head ≤ published, next ≤ seen ≤ published; between calls of Send next = head
//	[next, head)       staged        the kernel takes them in order
//	[head, published)  holes         it skips one per call (xskq_cons_read_desc)
//
// Concurrency contract: belongs to the owner of the Tx.
type txQueue struct {
	fd        int
	tx        ring[unix.XDPDesc]
	comp      ring[uint64]
	next      uint32 // what the kernel looks at next
	head      uint32 // what is staged next
	published uint32 // the producer index
	seen      uint32 // the producer index as the kernel may have read it
	completed uint32 // our index of the completion ring
	out       int    // chunks that the kernel took and hasn't returned; at most the completion ring's size

	kick func(fd int) unix.Errno // kickTx, or a test's
	back returns
}

// size is the number of frames that can be under way.
func (q *txQueue) size() int { return len(q.comp.desc) }

// room is the number of frames that can be staged.
func (q *txQueue) room() int { return q.size() - q.out - int(q.head-q.next) }

// staged is the number of frames that the kernel hasn't taken.
func (q *txQueue) staged() int { return int(q.head - q.next) }

// hole is a descriptor that the kernel skips, as it isn't in the UMEM (xp_validate_desc).
var hole = unix.XDPDesc{Addr: 1 << 62}

// stage puts a frame on the ring. There is room.
func (q *txQueue) stage(u *umem, addr uint64, n uint32) {
	if debug {
		u.owners.move(u.chunk(addr), inHeld, inSending)
	}
	*q.tx.at(q.head) = unix.XDPDesc{Addr: addr, Len: n}
	q.head++
}

// push lets the kernel take staged frames. It returns the kernel's error and how many it took. With EBUSY
// it dropped the last of these (__xsk_generic_xmit).
func (q *txQueue) push() (took int, e unix.Errno) {
	if int32(q.head-q.published) > 0 {
		q.published = q.head
		q.tx.producer.Store(q.published) // pairs with __xskq_cons_peek
	}
	if q.tx.needsWakeup() {
		e = q.kick(q.fd)
	}
	if e != unix.ENETDOWN && e != unix.ENXIO { // from xsk_check_common, before it looked at the ring
		q.seen = q.published
	}
	before := q.next
	if at := q.tx.consumer.Load(); int32(at-q.next) > 0 { // pairs with __xskq_cons_release
		q.next = at
	} else if e == unix.EBUSY {
		q.next++ // it publishes its index only after a frame that was sent
	}
	if int32(q.next-q.head) > 0 {
		q.head = q.next // it skipped a hole
		took = -1
	}
	took += int(q.next - before)
	q.out += took
	return took, e
}

// withdraw takes staged frames back from the ring: their chunks are free.
func (q *txQueue) withdraw(u *umem) {
	for i := q.next; i != q.head; i++ {
		d := q.tx.at(i)
		c := u.chunk(d.Addr)
		*d = hole
		if debug {
			u.owners.move(c, inSending, inPool)
		}
		q.back.add(&u.free, c)
	}
	q.back.flush(&u.free)
	q.head = q.next
	if q.published != q.seen {
		q.published = q.seen
		q.tx.producer.Store(q.published) // pairs with __xskq_cons_peek
	}
}

// reclaim frees the chunks that the kernel has returned. It leaves out the chunk
// keep, and tells whether that was among them.
func (q *txQueue) reclaim(u *umem, keep uint32) (kept bool) {
	ready := q.comp.producer.Load() - q.completed // pairs with xskq_prod_submit_n
	if ready == 0 {
		return false
	}
	for ; ready > 0; ready-- {
		addr := *q.comp.at(q.completed)
		q.completed++
		if addr == hole.Addr {
			continue // some kernels return what they skip
		}
		q.out--
		c := u.chunk(addr)
		if addr >= uint64(len(u.mem)) {
			u.lost.Add(1)
			continue
		}
		if c == keep {
			kept = true
			continue
		}
		if debug {
			u.owners.move(c, inSending, inPool)
		}
		q.back.add(&u.free, c)
	}
	q.back.flush(&u.free)
	q.comp.consumer.Store(q.completed) // pairs with xskq_prod_nb_free
	return kept
}

// none is no chunk.
const none = ^uint32(0)

// again stages the frame that the kernel dropped last once more, in front of those that are staged.
// It reports false if the kernel hasn't returned its chunk yet.
func (q *txQueue) again(u *umem) bool {
	d := *q.tx.at(q.next - 1)
	if !q.reclaim(u, u.chunk(d.Addr)) {
		return false
	}
	for i := q.head; i != q.next; i-- {
		*q.tx.at(i) = *q.tx.at(i - 1)
	}
	*q.tx.at(q.next) = d
	q.head++
	return true
}
