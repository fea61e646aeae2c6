package packet

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// health is what Receive returns when it found no more frames after the first
// n: an interface that went down leaves its mark on the socket, once.
func (r *Rx) health(n int) error {
	tell := r.tell
	if soError(r.fd) == unix.ENETDOWN {
		tell = true
	}
	switch r.tell = false; {
	case tell:
		r.down = true
	case !r.down:
		return nil
	case n > 0:
		r.down = false // it came up again
		return nil
	}
	// An interface is down before it is deleted, and the deletion itself makes
	// no event. The kernel then unbinds the socket, also when the interface
	// only left the namespace and may come back with the same index.
	if boundIfindex(r.fd) < 0 {
		r.gone = true
		return port.ErrGone
	}
	if tell {
		return port.ErrDown
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

// collect adds the kernel's count, which starts again when it is read. The caller holds mu.
func (r *Rx) collect() {
	if r.closed {
		return
	}
	if s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
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
	return errors.Join(r.ring.close(), unix.Close(r.fd))
}
