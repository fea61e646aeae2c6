package xdp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// rxQueue is the receiving side of one queue: its fill ring and its rx ring.
//
// Concurrency contract: invalid may be read by anyone, all else belongs to the owner of
// the Rx.
type rxQueue struct {
	fd     int
	fill   ring[uint64]
	rx     ring[unix.XDPDesc]
	filled uint32 // our index of the fill ring
	taken  uint32 // our index of the rx ring
	given  int    // chunks that the kernel has for this queue: from the fill ring to the rx ring
	target int    // what given should be; neither ring has fewer entries

	invalid atomic.Uint64 // descriptors that point nowhere; written by the owner

	scratch [port.MaxBatch]uint32
}

// receive moves frames from the rx ring to b and returns how many. Fewer than len(b)
// means that the ring was empty.
func (q *rxQueue) receive(u *umem, b []port.Frame) int {
	ready := q.rx.producer.Load() - q.taken // pairs with xskq_prod_submit
	if int(ready) > q.given {
		// The kernel can't return more than it has. Whatever this is, it is no frames.
		q.invalid.Add(1)
		q.taken += ready
		q.rx.consumer.Store(q.taken)
		return 0
	}
	n := 0
	for ; ready > 0 && n < len(b); ready-- {
		d := *q.rx.at(q.taken) // once: the kernel can write there
		q.taken++
		q.given--
		if !u.holds(d.Addr, d.Len) {
			q.invalid.Add(1)
			u.lost.Add(1)
			continue
		}
		c := u.chunk(d.Addr)
		if debug {
			u.owners.move(c, inReceiving, inHeld)
		}
		b[n] = port.Frame{Off: d.Addr, Len: d.Len, Slot: c}
		n++
	}
	q.rx.consumer.Store(q.taken) // pairs with xskq_prod_nb_free
	return n
}

// refill gives the kernel chunks until it has enough, or until there are no more.
func (q *rxQueue) refill(u *umem) {
	if q.given >= q.target {
		return
	}
	for q.given < q.target {
		n := u.free.take(q.scratch[:min(q.target-q.given, len(q.scratch))])
		if n == 0 {
			break
		}
		for _, c := range q.scratch[:n] {
			if debug {
				u.owners.move(c, inPool, inReceiving)
			}
			*q.fill.at(q.filled) = uint64(c) << u.shift
			q.filled++
		}
		q.given += n
		q.fill.producer.Store(q.filled) // pairs with __xskq_cons_peek
	}
	if q.fill.needsWakeup() {
		kickRx(q.fd) // what it says is found again when nothing comes
	}
}

// lost adds the frames that were lost in front of Receive.
func (q *rxQueue) lost(d *port.Drops) error {
	s, err := statistics(q.fd)
	if err != nil {
		return err
	}
	// rx_dropped counts frames for which there was no chunk and those that are longer than one;
	// the former are counted once more by the fill ring.
	starved := min(s.Rx_dropped, s.Rx_fill_ring_empty_descs)
	d[port.RxRingFull] += starved + s.Rx_ring_full
	d[port.RxTruncated] += s.Rx_dropped - starved
	d[port.RxInvalid] += q.invalid.Load()
	return nil
}
