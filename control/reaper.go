package control

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/packet"
)

// reapers bounds the threads that close sockets.
const reapers = 64

// reaper closes packet sockets on threads of its own. Each close waits for all readers of the kernel, twice
// (packet_release and packet_set_ring, net/packet/af_packet.c): some 20 ms in which a worker would leave the
// frames of all other pairs where they are, and 2000 times as long when 500 pairs go. Here they wait together.
//
// Concurrency contract: all methods may be called from any goroutine.
type reaper struct {
	mu      sync.Mutex
	waiting []int // descriptors that nobody closes yet
	running int   // goroutines that close
	idle    sync.Cond
	errs    []error
}

func newReaper() *reaper {
	r := &reaper{}
	r.idle.L = &r.mu
	return r
}

// close closes fd soon.
func (r *reaper) close(fd int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, fd)
	if r.running < reapers {
		r.running++
		go r.run()
	}
}

// run closes what there is to close.
func (r *reaper) run() {
	runtime.LockOSThread() // for good: the thread ends with the goroutine, none is left for later
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) > 0 {
		fd := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		err := unix.Close(fd)
		r.mu.Lock()
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("close packet socket: %w", err))
		}
	}
	if r.running--; r.running == 0 {
		r.idle.Broadcast()
	}
}

// wait returns when all is closed that was to be.
func (r *reaper) wait() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.running > 0 {
		r.idle.Wait()
	}
	err := errors.Join(r.errs...)
	r.errs = nil
	return err
}

// lateRx is a packet socket whose last descriptor the reaper closes.
type lateRx struct {
	*packet.Rx
	last   int // a duplicate, so that the worker's close isn't the last one; -1 when it was given up
	reaper *reaper
}

// late lets the reaper close rx in the end.
func (r *reaper) late(rx *packet.Rx) (*lateRx, error) {
	fd, err := unix.FcntlInt(uintptr(rx.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("duplicate packet socket: %w", err), rx.Close())
	}
	return &lateRx{rx, fd, r}, nil
}

// Close is idempotent.
func (x *lateRx) Close() error {
	err := x.Rx.Close()
	if x.last >= 0 {
		x.reaper.close(x.last)
		x.last = -1
	}
	return err
}
