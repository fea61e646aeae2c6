package xdp

// The transmit path, in the order in which a batch passes it. All of it runs on the
// worker that owns the Tx, and none of it blocks for longer than its retries allow.
//
//	1 reclaim: chunks that the kernel has returned go to the pool
//	2 stage: frames of our own UMEM move to the tx ring, others are copied
//	  into chunks first
//	3 push: one system call takes the staged frames through the far driver, in order;
//	  it stops where that has no room
//	4 a frame that the far driver dropped goes to the front of the ring again, after a yield in
//	  which the far side may empty its queue; after the retries it is a drop
//	5 what can't leave is taken back from the ring and dropped
//	6 reclaim, so that the next Receive finds the chunks
//
// Between calls nothing is staged.

import (
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// retries is how often one Send tries again in all. Each try lets others run
// on this CPU, most of all ksoftirqd, on whose queue the far side's frames may be.
const retries = 16

// Tx sends into one end by one of its queues.
type Tx struct {
	end     *End
	umem    *umem
	q       *txQueue
	worker  int
	slot    int
	longest uint32                // frame that the interface takes, as last heard of
	chunks  [port.MaxBatch]uint32 // for copies
	closed  bool
}

// tries is what one Send has left to try.
type tries struct {
	left     int
	hopeless bool // nothing more will leave in this call:
	why      port.Reason
}

// Send sends b.
func (x *Tx) Send(src port.Source, b []port.Frame, t *port.Tally) {
	rx, ours := src.(*Rx)
	ours = ours && rx.umem == x.umem
	tr := tries{left: retries}
	for rest := b; len(rest) > 0; {
		x.q.reclaim(x.umem, none)
		n := min(len(rest), x.q.room(), port.MaxBatch)
		switch {
		case n == 0:
			x.full(&tr)
		case ours:
			x.move(rest[:n], t)
		default:
			n = x.copy(src, rest[:n], t, &tr)
		}
		x.flush(t, &tr)
		if rest = rest[n:]; tr.hopeless {
			x.abandon(ours, rest, t, tr.why)
			break
		}
	}
	x.q.reclaim(x.umem, none)
	if !ours {
		src.Release(x.worker, b)
	}
}

// move stages frames of our own UMEM.
func (x *Tx) move(b []port.Frame, t *port.Tally) {
	for i := range b {
		f := &b[i]
		if f.Len > x.longest && x.tooLong(f.Len) {
			x.drop(f, t, port.TxMTU)
			continue
		}
		x.q.stage(x.umem, f.Off, f.Len)
	}
}

// drop drops a frame of our own UMEM.
func (x *Tx) drop(f *port.Frame, t *port.Tally, why port.Reason) {
	if debug {
		x.umem.owners.move(f.Slot, inHeld, inPool)
	}
	x.q.back.add(&x.umem.free, f.Slot)
	x.q.back.flush(&x.umem.free)
	t.Drops[why]++
}

// abandon drops what can't leave.
func (x *Tx) abandon(ours bool, b []port.Frame, t *port.Tally, why port.Reason) {
	if !ours {
		t.Drops[why] += uint64(len(b))
		return
	}
	for i := range b {
		x.drop(&b[i], t, why)
	}
}

// full waits for the kernel to return a chunk.
func (x *Tx) full(tr *tries) {
	if tr.left == 0 {
		tr.hopeless, tr.why = true, port.TxRingFull
		return
	}
	tr.left--
	yield()
}

// flush lets the kernel take what is staged, or takes it back.
func (x *Tx) flush(t *port.Tally, tr *tries) {
	q := x.q
	for q.staged() > 0 && !tr.hopeless {
		from := q.next
		n, e := q.push()
		if e == unix.EBUSY && n > 0 {
			n--
		}
		x.count(t, from, n)
		switch e {
		case 0, unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM:
			if n == 0 {
				x.pause(tr)
			}
		case unix.EBUSY:
			x.refused(t, tr)
		case unix.ENETDOWN:
			tr.hopeless, tr.why = true, port.TxLinkDown
		case unix.ENXIO, unix.ENODEV:
			tr.hopeless, tr.why = true, port.TxGone
		default:
			tr.hopeless, tr.why = true, port.TxError
		}
	}
	if n := q.staged(); n > 0 {
		t.Drops[tr.why] += uint64(n)
		q.withdraw(x.umem)
	}
}

// count adds n frames that left from ring index from on.
func (x *Tx) count(t *port.Tally, from uint32, n int) {
	t.Frames += uint64(n)
	for i := range uint32(n) {
		t.Bytes += uint64(x.q.tx.at(from + i).Len)
	}
}

// pause is called when the kernel took nothing: it has no memory, or the driver no room.
func (x *Tx) pause(tr *tries) {
	if tr.left == 0 {
		tr.hopeless, tr.why = true, port.TxBusy
		return
	}
	tr.left--
	x.q.reclaim(x.umem, none)
	yield()
}

// refused is called when the far driver dropped a frame: it is down, has no room, or the frame is too long for it.
func (x *Tx) refused(t *port.Tally, tr *tries) {
	n := x.q.tx.at(x.q.next - 1).Len
	switch {
	case x.tooLong(n):
		t.Drops[port.TxMTU]++
	case !x.end.running():
		tr.hopeless, tr.why = true, port.TxLinkDown
		t.Drops[port.TxLinkDown]++
	case tr.left > 0 && x.q.again(x.umem):
		tr.left--
		yield()
	default:
		t.Drops[port.TxBusy]++
	}
}

// tooLong tells whether n bytes are more than the interface takes. A device tells that apart
// from a full queue no more than a veth does.
func (x *Tx) tooLong(n uint32) bool {
	if mtu, ok := x.end.mtu(); ok {
		x.longest = longest(mtu)
	}
	return n > x.longest
}

// longest is the longest frame that an Ethernet device takes from another (is_skb_forwardable).
func longest(mtu int) uint32 { return uint32(mtu + ethHdrLen + tagLen) }

const (
	ethHdrLen = 14
	tagLen    = 4
)

// Queued is 0: what the kernel took has left, and what it didn't take was dropped.
func (x *Tx) Queued() int { return 0 }

// Close ends sending. What the kernel has not returned yet it returns to the next OpenTx, or to Pair.Close.
func (x *Tx) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	x.end.closeTx(x)
	return nil
}
