// Package wake lets one thread sleep until a descriptor is ready or another
// thread has work for it, without ever losing a wake-up.
//
// The sleeper and its wakers agree through one state word:
//
//	state    who sets it    meaning
//	RUNNING  the sleeper    it will look at its queues again before it sleeps
//	IDLE     the sleeper    it is about to sleep: whoever adds work must wake it
//	WAKING   one waker      a wake-up is on its way; other wakers need do nothing
//
// The sleeper stores IDLE and then looks at its queues once more; a waker adds
// its work and then looks at the state. Go's atomics are sequentially
// consistent, so one of the two sees the other: either the sleeper finds the
// work, or the waker finds IDLE.
package wake

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	running = iota
	idle
	waking
)

// maxEvents bounds the descriptors returned by one call; the rest come with the next.
const maxEvents = 64

// self is the token of the Waiter's own eventfd.
const self = -1

// Waiter is what one thread sleeps on.
//
// Concurrency contract: Wake may be called by any goroutine until Close; all else
// belongs to the sleeper.
type Waiter struct {
	epfd, evfd int
	_          [48]byte
	state      atomic.Uint32 // on a line of its own: wakers read it once per batch, the kernel writes into events
	_          [60]byte
	events     [maxEvents]unix.EpollEvent
	tokens     [maxEvents]int32
}

// New returns a Waiter with no descriptors, in state RUNNING.
func New() (*Waiter, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	evfd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create eventfd: %w", err), unix.Close(epfd))
	}
	w := &Waiter{epfd: epfd, evfd: evfd}
	if err := w.Add(evfd, self); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Add watches fd, edge-triggered, and reports it by token, which must be ≥ 0.
// A descriptor that is ready now is reported once.
func (w *Waiter) Add(fd int, token int32) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: token}
	if err := unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watch descriptor %d: %w", fd, err)
	}
	return nil
}

// Remove stops watching fd.
func (w *Waiter) Remove(fd int) error {
	if err := unix.EpollCtl(w.epfd, unix.EPOLL_CTL_DEL, fd, nil); err != nil {
		return fmt.Errorf("stop watching descriptor %d: %w", fd, err)
	}
	return nil
}

// Poll returns the tokens of the descriptors that have become ready, without waiting.
// borrowed: valid until the next call of Poll or Sleep.
func (w *Waiter) Poll() []int32 { return w.wait(0) }

// Arm announces that the sleeper is going to sleep. It must then look at its queues
// once more, and either Disarm or Sleep.
func (w *Waiter) Arm() { w.state.Store(idle) } // pairs with Wake

// Disarm takes Arm back: there was work after all.
func (w *Waiter) Disarm() { w.state.Store(running) } // pairs with Wake

// Sleep waits for a descriptor, a Wake or the end of d, and returns as Poll does.
func (w *Waiter) Sleep(d time.Duration) []int32 {
	t := w.wait(int(d.Milliseconds()))
	w.state.Store(running) // pairs with Wake
	return t
}

func (w *Waiter) wait(msec int) []int32 {
	// Interrupted or not, the caller looks again: an error here is only EINTR.
	n, err := unix.EpollWait(w.epfd, w.events[:], msec)
	if err != nil {
		return nil
	}
	k := 0
	for i := 0; i < n; i++ {
		if t := w.events[i].Fd; t != self {
			w.tokens[k] = t
			k++
		}
	}
	return w.tokens[:k]
}

// one is what an eventfd adds per write. The descriptor is edge-triggered: each
// write is an event, and nothing need ever be read (eventfd(2), epoll(7)).
var one = [8]byte{1}

// Wake wakes the sleeper if it sleeps or is about to, and reports whether it did.
// Call it after the work is visible.
func (w *Waiter) Wake() bool {
	if w.state.Load() != idle || !w.state.CompareAndSwap(idle, waking) { // pairs with Arm
		return false
	}
	_, err := unix.Write(w.evfd, one[:])
	return err == nil
}

// Close frees the descriptors. Nobody may use the Waiter any more.
func (w *Waiter) Close() error {
	return errors.Join(unix.Close(w.evfd), unix.Close(w.epfd))
}
