package fake

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/wire"
)

// flaws are what is noted when a frame leaves.
type flaws struct{ repeat, swapped bool }

// reader decides what becomes of each frame. It is the reading goroutine's own.
type reader struct {
	f        *Forwarder
	n        uint64 // frames taken
	held     []byte // waits for the next of its flow; nil: none
	heldFlow uint16
	next     time.Time // when the forwarder is free again, at its capacity
}

// read runs until Close.
func (f *Forwarder) read() {
	defer f.done.Done()
	defer close(f.queue)
	r := reader{f: f}
	buf := make([]byte, 1<<16)
	for !f.ending.Load() {
		n, _, err := unix.Recvfrom(f.in, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			r.release(flaws{}) // nothing follows for now
		case err == nil:
			if s, ok := wire.Parse(buf[:n]); ok {
				r.take(slices.Clone(buf[:n]), s)
			}
		case !errors.Is(err, unix.EINTR):
			return // the interface is gone
		}
	}
}

// take decides by the number of the frame.
func (r *reader) take(frame []byte, s wire.Stamp) {
	r.n++
	r.f.note(func(l *Ledger) { l.Taken++ })
	c := &r.f.cfg
	switch {
	case every(r.n, c.DropEvery):
		r.f.note(func(l *Ledger) { l.Dropped++ })
		return
	case every(r.n, c.RepeatEvery):
		r.queue(frame, flaws{repeat: true})
	case every(r.n, c.SwapEvery) && r.held == nil:
		r.held, r.heldFlow = frame, s.Flow
		return
	default:
		r.queue(frame, flaws{})
	}
	if r.held != nil && r.heldFlow == s.Flow {
		r.release(flaws{swapped: true})
	}
}

func every(n uint64, k int) bool { return k > 0 && n%uint64(k) == 0 }

// release lets the held frame go.
func (r *reader) release(how flaws) {
	if r.held != nil {
		r.queue(r.held, how)
		r.held = nil
	}
}

// queue gives a frame its time to leave.
func (r *reader) queue(frame []byte, how flaws) {
	now := time.Now()
	e := entry{frame: frame, due: later(now, r.next), flaws: how}
	if d := r.f.cfg.Delay; d > 0 {
		s, _ := wire.Parse(frame) // taken frames are the load's
		e.due = later(e.due, now.Add(time.Duration(s.Due)+d-monotonic()))
	}
	select {
	case r.f.queue <- e:
		if c := r.f.cfg.Capacity; c > 0 {
			r.next = e.due.Add(time.Duration(1e9 / c))
		}
	default:
		r.f.note(func(l *Ledger) { l.Overflow++ })
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// monotonic reads the clock of the frames' stamps.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock exists and ts is valid: it can't fail
	}
	return time.Duration(ts.Nano())
}

// write runs until read ends.
func (f *Forwarder) write() {
	defer f.done.Done()
	for e := range f.queue {
		f.wait(e.due)
		f.send(e.frame)
		if e.flaws.repeat && f.send(e.frame) {
			f.note(func(l *Ledger) { l.Repeated++ })
		}
		if e.flaws.swapped {
			f.note(func(l *Ledger) { l.Swapped++ })
		}
	}
}

// wait returns when a frame may leave, or at once when the forwarder ends.
func (f *Forwarder) wait(due time.Time) {
	for !f.ending.Load() {
		until := later(due, time.Unix(0, f.stopped.Load()))
		left := time.Until(until)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, 10*time.Millisecond))
	}
}

// send says whether the kernel took the frame.
func (f *Forwarder) send(frame []byte) bool {
	for !f.ending.Load() {
		_, err := unix.Write(f.out, frame)
		switch {
		case err == nil:
			now := time.Now()
			f.note(func(l *Ledger) {
				if l.Sent == 0 {
					l.First = now
				}
				l.Sent, l.Last = l.Sent+1, now
			})
			return true
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS):
			return false
		}
	}
	return false
}

func (f *Forwarder) note(how func(*Ledger)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(&f.ledger)
}
