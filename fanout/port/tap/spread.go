package tap

// The frames of a TAP can be spread over several queues, one per worker, by a program
// that names the queue of each (TUNSETSTEERINGEBPF). So that a flow keeps its order,
// one queue must get all of it:
//
//	when       which queue gets a frame
//	alone      the first: the others are detached
//	opening    queues are attached in the order of their numbers, which are their places then (tun_attach),
//	           and the program is there before the second. Those that are there already get
//	           other queues' frames until the last has come; what is in them then is dropped
//	open       the program's. No queue leaves (the last one would take its place), and a link
//	           that goes down and up changes nothing
//
// Whose frames go past the device's choice of a queue chooses himself: XDP takes the queue of the
// sending CPU, AF_XDP that of its socket. Such a flow stays in a queue as long as its sender stays
// where it is; on a veth it would be the same. So spreading is port.Loose.
//
// As in package packet, the program's table isn't changed while the halves are open.

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// spread is the further queues of an end, and the halves that are open.
//
// Concurrency contract: the End's.
type spread struct {
	more   []int // queues 1 and up, detached but for those of open halves
	attach func(fd int) error
	size   int // how many halves there are to be; 0 while frames aren't spread
	rxs    []*Rx
	open   int // of rxs
}

// AddQueues gives the end further queues, detached ones, for Spread. attach sets the
// steering program of the device that fd is a queue of; its answer is the number of the queue.
//
// borrowed: fds as New's.
func (e *End) AddQueues(fds []int, attach func(fd int) error) error {
	for _, fd := range fds {
		if err := checkQueue(fd, unix.IFF_MULTI_QUEUE|unix.IFF_DETACH_QUEUE); err != nil {
			return fmt.Errorf("use further tap queue: %w", err)
		}
	}
	e.spread.more, e.spread.attach = fds, attach
	return nil
}

// Spread implements port.Spreader. There must be n queues.
func (e *End) Spread(n int) port.Spreading {
	if n < 2 || n > 1+len(e.spread.more) {
		return port.Single
	}
	e.spread.size = n
	return port.Loose
}

// openSpread opens the reader of the next queue.
func (e *End) openSpread(w port.Worker) (*Rx, error) {
	s := &e.spread
	if len(s.rxs) == 0 {
		if err := s.attach(e.fd); err != nil {
			s.size = 0
			return nil, err
		}
		r, err := e.openRx(w)
		if err != nil {
			return nil, err
		}
		s.enter(r)
		return r, nil
	}
	fd, err := dup(s.more[len(s.rxs)-1])
	if err != nil {
		return nil, err
	}
	if err := setQueue(fd, unix.IFF_ATTACH_QUEUE); err != nil {
		return nil, closing(fd, err)
	}
	r := &Rx{fd: fd, arena: w.Arena, limit: &e.limit}
	s.enter(r)
	if len(s.rxs) == s.size {
		for _, r := range s.rxs {
			r.discard()
		}
	}
	return r, nil
}

func (s *spread) enter(r *Rx) {
	r.spread = s
	s.rxs = append(s.rxs, r)
	s.open++
}

// leave detaches the queue of a half that closes; the first stays. The last half ends the spreading.
func (s *spread) leave(r *Rx) error {
	var err error
	if r != s.rxs[0] {
		err = setQueue(r.fd, unix.IFF_DETACH_QUEUE)
		if errors.Is(err, unix.EINVAL) {
			err = nil // the device was deleted
		}
	}
	if s.open--; s.open == 0 {
		s.rxs, s.size = nil, 0
	}
	return err
}

// setQueue attaches or detaches a queue.
func setQueue(fd int, how uint16) error {
	req, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	req.SetUint16(how)
	if err := unix.IoctlIfreq(fd, unix.TUNSETQUEUE, req); err != nil {
		return fmt.Errorf("attach or detach tap queue: %w", os.NewSyscallError("ioctl TUNSETQUEUE", err))
	}
	return nil
}

// discard drops what is in the queue: until now it may have got any frame.
func (r *Rx) discard() {
	var b [64]byte // the kernel drops what doesn't fit
	n := uint64(0)
	for {
		if _, errno := read(r.fd, b[:]); errno != 0 && errno != unix.EINVAL { // EINVAL: see Receive
			break
		}
		n++
	}
	r.mu.Lock()
	r.misplaced += n
	r.mu.Unlock()
}
