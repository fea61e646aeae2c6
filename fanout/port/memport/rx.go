package memport

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// state of a slot.
type state uint8

const (
	free  state = iota // the device may fill it
	full               // Receive may take it
	taken              // a worker holds it
)

// slot holds one frame behind its virtio_net_hdr.
type slot struct {
	mem   []byte
	len   int // of the frame
	state state
}

// Rx is one receive queue: a ring of slots, as a packet socket has one.
type Rx struct {
	cfg    *Config
	arena  *port.Arena
	fd     int
	mu     sync.Mutex // guards all below
	slots  []slot
	head   int // the next that Receive looks at
	tail   int // the next that the device fills
	err    error
	drops  port.Drops
	closed bool
}

func newRx(cfg *Config, w port.Worker) (*Rx, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open memory port: %w", err)
	}
	r := &Rx{cfg: cfg, arena: w.Arena, fd: fd, slots: make([]slot, cfg.Slots)}
	for i := range r.slots {
		r.slots[i].mem = make([]byte, port.VNetHdrLen+cfg.SlotLen)
	}
	return r, nil
}

// put fills the next slot.
func (r *Rx) put(hdr, frame []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[r.tail]
	if s.state != free {
		r.drops[port.RxRingFull]++
		return false
	}
	if need := port.VNetHdrLen + len(frame); need > len(s.mem) {
		s.mem = make([]byte, need)
	}
	clear(s.mem[:port.VNetHdrLen])
	copy(s.mem, hdr)
	s.len = copy(s.mem[port.VNetHdrLen:], frame)
	s.state = full
	r.tail = (r.tail + 1) % len(r.slots)
	r.wake()
	return true
}

// wake makes FD ready. Each write to an eventfd is an edge, whether or not it is ever read.
func (r *Rx) wake() {
	if r.closed {
		return
	}
	one := [8]byte{1}
	_, _ = unix.Write(r.fd, one[:]) // can fail only after 2^64 wakes
}

// fail lets Receive return err once, or for ever if it is ErrGone.
func (r *Rx) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.wake()
}

// FD returns the queue's eventfd.
func (r *Rx) FD() int { return r.fd }

// Receive returns the frames that wait.
func (r *Rx) Receive(b []port.Frame) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, port.ErrClosed
	}
	n := 0
	for ; n < len(b) && r.slots[r.head].state == full; n++ {
		if !r.take(&b[n]) {
			return n, port.ErrNoBuffer
		}
	}
	if n == len(b) {
		return n, nil
	}
	err := r.err
	if !errors.Is(err, port.ErrGone) {
		r.err = nil
	}
	return n, err
}

// take makes f the frame at head.
func (r *Rx) take(f *port.Frame) bool {
	s := &r.slots[r.head]
	*f = port.Frame{Off: port.VNetHdrLen, Len: uint32(s.len), Slot: uint32(r.head), Flags: port.VNet}
	s.state = taken
	if s.len > r.cfg.SlotLen {
		buf, ok := r.arena.Get()
		if !ok {
			s.state = full
			return false
		}
		copy(r.arena.Buffer(buf), s.mem[:port.VNetHdrLen+s.len])
		f.Slot, f.Flags = buf, port.VNet|port.Buffered
		s.state = free
	}
	r.head = (r.head + 1) % len(r.slots)
	return true
}

// Bytes returns a frame.
func (r *Rx) Bytes(f *port.Frame) []byte {
	if f.Flags&port.Buffered != 0 {
		return r.arena.Buffer(f.Slot)[:port.VNetHdrLen+f.Len]
	}
	return r.slots[f.Slot].mem[:port.VNetHdrLen+f.Len] // a taken slot's memory isn't changed by anyone
}

// Release frees slots and buffers.
func (r *Rx) Release(_ int, b []port.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b {
		if b[i].Flags&port.Buffered != 0 {
			r.arena.Put(b[i].Slot)
			continue
		}
		if s := &r.slots[b[i].Slot]; s.state == taken {
			s.state = free
		} else {
			panic("memport: a frame was released that nobody holds")
		}
	}
}

// Stats returns what was lost because the ring was full.
func (r *Rx) Stats() port.RxStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return port.RxStats{Drops: r.drops}
}

// Close frees the queue.
func (r *Rx) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return unix.Close(r.fd)
}
