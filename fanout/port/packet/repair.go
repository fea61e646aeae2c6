package packet

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A receive ring can stop for ever. When a GSO frame has a type that virtio_net_hdr
// doesn't know (SCTP's, or UDP fragmentation of a virtual machine), tpacket_rcv has
// reserved the slot at its head already, drops the frame and doesn't give the
// slot back: it finds it reserved from then on and drops all that comes (seen in
// Linux 6.18). The socket can't forbid such frames, so a ring that stopped is replaced.
//
// The sign is that frames are lost while the slot at the head is free and
// nothing was received. No descriptor tells: see port.Rx.Receive.

// inspectEvery is how often an idle port is looked at.
const inspectEvery = 100 * time.Millisecond

// quiet is what inspect saw.
type quiet struct {
	at      time.Time
	emptied uint64 // Rx.emptied
	full    uint64 // Rx.full
	missing uint64 // frames that the kernel counted, but neither gave us nor lost
}

// inspect looks after a port from which Receive got nothing, with a free slot at head. It compares
// with what it saw last and judges only if nothing was received in between.
func (r *Rx) inspect(now time.Time) error {
	if now.Sub(r.quiet.at) < inspectEvery {
		return nil
	}
	r.mu.Lock()
	r.collect()
	q := quiet{at: now, emptied: r.emptied, full: r.full, missing: r.seen - r.emptied - r.full}
	r.mu.Unlock()
	last := r.quiet
	r.quiet = q
	switch {
	case last.at.IsZero() || q.emptied != last.emptied:
		return nil
	case q.full != last.full:
		return r.repair()
	case r.repaired && q.missing == last.missing:
		// They came while there was no ring. Nothing is on its way into the new one.
		r.mu.Lock()
		r.full += q.missing
		r.mu.Unlock()
		r.repaired = false
	}
	return nil
}

// repair replaces the ring by one like it. It takes some milliseconds, in which frames are lost.
// While a worker still holds a slot, it does nothing: the next inspect will call again.
func (r *Rx) repair() error {
	if !r.ring.idle() {
		return nil
	}
	slots, slotLen := int(r.ring.mask)+1, 1<<r.ring.shift
	err := r.ring.close()
	r.ring = nil
	if err == nil {
		err = unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{})
	}
	if err == nil {
		r.ring, err = newRing(r.fd, unix.PACKET_RX_RING, slots, slotLen)
	}
	if err == nil && r.group != nil {
		err = r.rejoin()
	}
	if err != nil {
		r.err = fmt.Errorf("replace a receive ring that stopped: %w", err)
		return r.err
	}
	r.head, r.quiet, r.repaired = 0, quiet{}, true
	return nil
}
