package tap

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// lead is where a frame's virtio_net_hdr goes in a buffer: the payload of TCP over IPv4 with
// timestamps (10+14+20+32 bytes on) is then at a multiple of 32, and 62 KB of it are
// read and written in 4 % less time.
const lead = 20

// Rx reads a queue. It implements port.Rx.
type Rx struct {
	fd     int
	arena  *port.Arena
	limit  *atomic.Uint32 // End.limit
	spread *spread        // of the end's halves, if there are several
	counts bool           // what the device drops is told by this half: the first of its end

	truncated atomic.Uint64 // written by the owner
	invalid   atomic.Uint64 // written by the owner

	mu        sync.Mutex // guards what follows, for Stats and Close
	base      uint64     // the device's tx_dropped when the port was opened
	missed    uint64     // what it has grown by since
	misplaced uint64     // frames that were in the queue before the end was spread
}

var _ port.Rx = (*Rx)(nil)

// FD returns the queue's descriptor.
func (r *Rx) FD() int { return r.fd }

// Receive reads frames until the queue is empty, b is full or no buffer is free.
func (r *Rx) Receive(b []port.Frame) (int, error) {
	for n := 0; n < len(b); {
		slot, ok := r.arena.Get()
		if !ok {
			return n, r.withoutBuffer()
		}
		buf := r.arena.Buffer(slot)[lead:]
		got, errno := read(r.fd, buf)
		if errno == 0 && got > port.VNetHdrLen && got < len(buf) {
			b[n] = port.Frame{
				Off:   lead + port.VNetHdrLen,
				Len:   uint32(got - port.VNetHdrLen),
				Slot:  slot,
				Flags: port.VNet | port.Buffered,
			}
			n++
			continue
		}
		r.arena.Put(slot)
		switch errno {
		case 0:
			// A full buffer is longer than any frame may be: the kernel cut it off.
			r.truncated.Add(1)
		case unix.EINVAL, unix.EFAULT:
			// A kind of GSO that virtio_net_hdr has no word for (tun_put_user). That frame is
			// gone; the next may be good.
			r.invalid.Add(1)
		case unix.EAGAIN:
			return n, nil
		case unix.EBADFD:
			return n, port.ErrGone
		case unix.EBADF:
			return n, port.ErrClosed
		default:
			return n, errno
		}
	}
	return len(b), nil
}

// withoutBuffer tells whether a frame waits for a buffer. Without one it isn't told by read,
// and poll takes nothing away from an edge that is still to come.
func (r *Rx) withoutBuffer() error {
	p := [1]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	switch n, err := unix.Poll(p[:], 0); {
	case n == 0 && err == nil:
		return nil
	case p[0].Revents&unix.POLLERR != 0:
		return port.ErrGone // tun_chr_poll
	}
	return port.ErrNoBuffer
}

// Bytes returns a frame with its virtio_net_hdr.
// borrowed: valid until f is released.
func (r *Rx) Bytes(f *port.Frame) []byte {
	return r.arena.Buffer(f.Slot)[f.Off-port.VNetHdrLen : f.Off+uint64(f.Len)]
}

// Release gives the frames' buffers back.
func (r *Rx) Release(_ int, b []port.Frame) {
	for i := range b {
		r.arena.Put(b[i].Slot)
	}
}

// Stats reports frames that found a queue's ring full as port.RxRingFull. It asks
// the kernel, which takes tens of microseconds, and takes notice of the device's MTU.
func (r *Rx) Stats() port.RxStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	var s port.RxStats
	s.Drops[port.RxRingFull] = r.missed
	s.Drops[port.RxTruncated] = r.truncated.Load()
	s.Drops[port.RxInvalid] = r.invalid.Load()
	s.Drops[port.RxMisplaced] = r.misplaced
	return s
}

// look asks for the device's count. Of a device that is gone, or is just being renamed,
// there is none: the last one stays.
func (r *Rx) look() {
	if !r.counts {
		return
	}
	if d, err := readLink(r.fd); err == nil && d.dropped >= r.base {
		r.missed = d.dropped - r.base
		setLimit(r.limit, d.mtu)
	}
}

// Close closes the port's own descriptor. Stats still answers, with what it was.
func (r *Rx) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return nil
	}
	r.look()
	var err error
	if r.spread != nil {
		err = r.spread.leave(r)
	}
	return errors.Join(err, closeOnce(&r.fd))
}
