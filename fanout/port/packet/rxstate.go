package packet

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// checkEvery bounds how often a port that is polled asks the kernel: a system
// call costs as much as half a frame.
const checkEvery = time.Millisecond

// health is what Receive returns when it found no more frames after the first
// n, and the slot at head has status st. It asks only when there were none at all: what
// it misses is found when an idle port is asked next.
func (r *Rx) health(n int, st uint32) error {
	if n > 0 && !r.tell {
		r.down = false // whatever was heard of it, it works
		return nil
	}
	now := time.Now()
	if now.Sub(r.checked) < checkEvery && !r.tell {
		return nil
	}
	r.checked = now
	// An interface that went down leaves its mark on the socket, once.
	if r.tell = r.tell || soError(r.fd) == unix.ENETDOWN; r.tell {
		r.down = true
	}
	// It is down before it is deleted, and the deletion itself makes no event. The kernel
	// then unbinds the socket, also when the interface only left the namespace
	// and may come back with the same index.
	if r.down && boundIfindex(r.fd) < 0 {
		r.gone = true
		return port.ErrGone
	}
	if r.tell {
		r.tell = false
		return port.ErrDown
	}
	if st == unix.TP_STATUS_KERNEL {
		return r.inspect(now)
	}
	return nil
}

// Stats adds up what the kernel and Receive lost.
func (r *Rx) Stats() port.RxStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect()
	var s port.RxStats
	s.Drops[port.RxRingFull] = r.full
	s.Drops[port.RxTruncated] = r.truncated.Load()
	s.Drops[port.RxInvalid] = r.invalid.Load()
	return s
}

// askAfter is after how many frames Receive asks for the kernel's counts, if
// nobody else does: they have 32 bits.
const askAfter = 1 << 24

func (r *Rx) ask() {
	r.asked = r.emptied
	r.mu.Lock()
	r.collect()
	r.mu.Unlock()
}

// collect adds the kernel's count, which starts again when it is read. The caller holds mu.
func (r *Rx) collect() {
	if r.closed {
		return
	}
	if s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		r.seen += uint64(s.Packets) // the drops among them
		r.full += uint64(s.Drops)
	}
}

// Close frees the socket and its ring.
func (r *Rx) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.collect()
	r.closed = true
	if r.group != nil {
		r.group.leave(r)
	}
	var err error
	if r.ring != nil {
		err = r.ring.close()
	}
	return errors.Join(err, unix.Close(r.fd))
}
