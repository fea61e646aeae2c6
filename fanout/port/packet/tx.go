package packet

// The transmit path, in the order in which a batch passes it. All of it runs on the
// worker that owns the Tx, and none of it blocks for longer than its retries.
//
//	1 stage: frames that fit slots and aren't GSO are copied into the ring,
//	  up to the first other one
//	2 kick: one system call takes the staged slots in order through the
//	  driver; it stops at the first that the far side doesn't take
//	3 a frame that stopped it is tried again after a yield, in which the far
//	  side may empty its queue; then it is dropped, and what was staged
//	  behind it is staged again
//	4 the others go by a second socket, one call each (big.go); the ring
//	  is empty then, so the order stays
//	5 all frames are released
//
// Between calls no slot is staged. Slots may still be TP_STATUS_SENDING then: the
// kernel has them, and gives them back when the frame is freed.

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// retries is how often one Send tries again in all. Each try lets others run
// on this CPU, most of all ksoftirqd, on whose queue the far side's frames may be.
const retries = 16

// cautious is how many frames are staged at once after the retries are used up: each frame that
// then stops the kernel makes us stage those behind it again.
const cautious = 8

// Tx sends into one interface by a Sender. It holds no descriptor.
type Tx struct {
	s      *Sender
	worker int
	to     unix.RawSockaddrLinklayer
	mtu    int  // as last heard of
	dead   bool // the last that was heard is that nothing leaves: don't try for long
	soft   int  // as many GSO frames are still taken to be refused whole
	ifreq  unix.Ifreq
}

// Tx returns what sends by interface ifindex for worker w, which owns the Sender.
func (s *Sender) Tx(ifindex int, w port.Worker) (*Tx, error) {
	x := &Tx{s: s, worker: w.ID, to: unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Ifindex: int32(ifindex)}}
	if x.name() != nil {
		return nil, fmt.Errorf("send by interface %d: %w", ifindex, port.ErrGone)
	}
	x.readMTU()
	return x, nil
}

// Send sends b.
func (x *Tx) Send(src port.Source, b []port.Frame, t *port.Tally) {
	tr := tries{left: retries}
	for rest := b; len(rest) > 0; {
		most := len(rest)
		if tr.left == 0 {
			most = cautious
		}
		n, big := x.s.stage(src, rest, most)
		switch {
		case n > 0:
			n = x.sendStaged(src, rest[:n], t, &tr)
		case big:
			x.sendBig(src, &rest[0], t, &tr)
			n = 1
		default:
			x.ringFull(&tr)
		}
		if rest = rest[n:]; tr.hopeless {
			t.Drops[tr.why] += uint64(len(rest))
			break
		}
	}
	src.Release(x.worker, b)
}

// tries is what one Send has left to try.
type tries struct {
	left     int
	hopeless bool // nothing more will leave in this call:
	why      port.Reason
}

// sendStaged sends what was staged of b, all of it, and returns how many left or were
// dropped. The others it takes back.
func (x *Tx) sendStaged(src port.Source, b []port.Frame, t *port.Tally, tr *tries) (done int) {
	s := x.s
	for {
		e := sendTo(s.fd, nil, &x.to)
		n := s.consumed(len(b) - done)
		s.head += uint32(n)
		count(t, b[done:done+n])
		if done += n; done == len(b) {
			x.dead = false
			return done
		}
		if s.ring.hdr(s.head).status.Load() == unix.TP_STATUS_WRONG_FORMAT && e != unix.EMSGSIZE {
			e = unix.EINVAL
		}
		if x.again(e, src, &b[done], tr) {
			continue
		}
		s.unstage(len(b) - done)
		t.Drops[tr.why]++
		return done + 1
	}
}

// ringFull waits for a slot to come back.
func (x *Tx) ringFull(tr *tries) {
	if tr.left > 0 {
		tr.left--
		yield()
	} else {
		tr.hopeless, tr.why = true, port.TxRingFull
	}
}

func count(t *port.Tally, b []port.Frame) {
	t.Frames += uint64(len(b))
	for i := range b {
		t.Bytes += uint64(b[i].Len)
	}
}

// Queued is 0: what the kernel took has left.
func (x *Tx) Queued() int { return 0 }

// Close does nothing: the Sender has the descriptors.
func (x *Tx) Close() error { return nil }
