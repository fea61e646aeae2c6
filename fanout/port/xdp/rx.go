package xdp

// The receive path, in the order in which a frame passes it:
//
//	step                                      who         blocks
//	1 the device's XDP program sends the
//	  frame to its queue's socket, the kernel
//	  copies it into a chunk of the fill ring softirq
//	2 Receive takes its descriptor            owner       never
//	3 Receive gives the kernel other chunks   owner       never
//	4 Send moves the chunk to the far end, or
//	  Release gives it back                   any worker  never

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// Rx receives the frames of an end, from all its queues. A flow is in one queue, as far as the
// sender's choice of queue is one per flow: so it is for a socket's frames.
//
// Concurrency contract: port.Rx's.
type Rx struct {
	end    *End
	umem   *umem
	queues []*rxQueue
	next   int        // the queue that Receive looks at first
	before port.Drops // what earlier halves of the end have counted
	gone   bool

	mu     sync.Mutex // guards Stats against Close
	stats  port.RxStats
	closed bool // written by the owner
}

// FD returns a descriptor that watches all queues and the interface.
func (r *Rx) FD() int { return r.end.epfd }

// Bytes returns a frame.
func (r *Rx) Bytes(f *port.Frame) []byte { return r.umem.bytes(f.Off, f.Len) }

// Release gives frames back.
func (r *Rx) Release(_ int, b []port.Frame) {
	var back returns
	for i := range b {
		if debug {
			r.umem.owners.move(b[i].Slot, inHeld, inPool)
		}
		back.add(&r.umem.free, b[i].Slot)
	}
	back.flush(&r.umem.free)
}

// Receive returns frames that arrived.
func (r *Rx) Receive(b []port.Frame) (int, error) {
	if r.closed {
		return 0, port.ErrClosed
	}
	n, starving := 0, false
	for range r.queues {
		if n == len(b) {
			return n, nil
		}
		q := r.queues[r.next]
		if r.next++; r.next == len(r.queues) {
			r.next = 0
		}
		n += q.receive(r.umem, b[n:])
		q.refill(r.umem)
		starving = starving || q.given == 0
	}
	switch {
	case n == len(b):
		return n, nil
	case n == 0:
		if err := r.health(); err != nil {
			return 0, err
		}
	}
	if starving {
		// All chunks are held. The kernel drops what comes for this queue, and no frame will tell us
		// when there are some again.
		return n, port.ErrNoBuffer
	}
	return n, nil
}

// health tells why nothing comes.
func (r *Rx) health() error {
	if r.gone {
		return port.ErrGone
	}
	fd := r.queues[0].fd
	switch kickRx(fd) {
	case unix.ENXIO:
		r.gone = true
	case unix.ENETDOWN:
		// An interface that is being deleted is down first. Its sockets are told (xsk_notifier) before
		// they are unbound, and then no more.
		r.gone = soError(fd) != 0
		if !r.gone {
			return port.ErrDown
		}
	default:
		return nil
	}
	return port.ErrGone
}

// Stats asks the kernel what it lost.
func (r *Rx) Stats() port.RxStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.readStats()
	}
	return r.stats
}

// readStats keeps the last that was known if the kernel doesn't tell.
func (r *Rx) readStats() error {
	var all port.Drops
	for _, q := range r.queues {
		if err := q.lost(&all); err != nil {
			return err
		}
	}
	for i := range all {
		r.stats.Drops[i] = all[i] - r.before[i]
	}
	return nil
}

// Close ends receiving. The end's sockets stay open; what arrives meanwhile waits for the next
// OpenRx, as far as there are chunks.
func (r *Rx) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	err := r.readStats()
	r.closed = true
	r.end.closeRx(r)
	if err != nil {
		return fmt.Errorf("close receiving half of %s: %w", r.end.name, err)
	}
	return nil
}
