package xdp

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// End is one end of a pair: a device and its sockets.
//
// Concurrency contract: OpenRx and OpenTx may be called by any goroutine.
type End struct {
	name    string
	ifindex int
	umem    *umem
	redir   *redirect
	watch   int // see newWatch
	epfd    int // watches the sockets that receive, and watch
	rx      []*rxQueue
	tx      []*txQueue
	fds     []int // the sockets

	mu     sync.Mutex
	rxOpen bool
	before port.Drops // what the receiving halves that are closed have counted
	txOpen []bool     // by queue
}

// Mode tells where the kernel runs the end's XDP program.
func (e *End) Mode() Mode { return e.redir.mode }

// Senders is the number of transmitting halves that can be open at a time.
func (e *End) Senders() int { return len(e.tx) }

// OpenRx returns the receiving half. It receives from all queues, so there is one at a time.
func (e *End) OpenRx(port.Worker) (port.Rx, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rxOpen {
		return nil, fmt.Errorf("receive from %s: another worker does", e.name)
	}
	e.rxOpen = true
	return &Rx{end: e, umem: e.umem, queues: e.rx, before: e.before}, nil
}

// OpenTx returns a transmitting half, with a queue of its own.
func (e *End) OpenTx(w port.Worker) (port.Tx, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot := slices.Index(e.txOpen, false)
	if slot < 0 {
		return nil, fmt.Errorf("send by %s: all %d queues are taken (open the pair for more senders)", e.name, len(e.tx))
	}
	e.txOpen[slot] = true
	x := &Tx{end: e, umem: e.umem, q: e.tx[slot], worker: w.ID, slot: slot}
	x.tooLong(0) // learns the MTU
	return x, nil
}

func (e *End) closeRx(r *Rx) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before.Add(&r.stats.Drops)
	e.rxOpen = false
}

func (e *End) closeTx(x *Tx) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.txOpen[x.slot] = false
}

// open makes the sockets of all queues. It runs in the device's namespace.
func (e *End) open(d *device, n split, senders int) (err error) {
	if e.redir, err = newRedirect(d.rx); err != nil {
		return err
	}
	for q := range max(d.rx, senders) {
		if err := e.openQueue(q, n, q < d.rx, q < senders); err != nil {
			return err
		}
	}
	e.txOpen = make([]bool, senders)
	return e.openEpoll()
}

// openQueue makes the sockets of queue q: one that receives, and one that sends and shares its completion
// ring. They are two because epoll sends what is on the tx ring of a socket that it looks at (xsk_poll), and
// that would be on the receiving worker's CPU: frames could overtake each other. A queue that nothing
// arrives on has only the latter.
func (e *End) openQueue(q int, n split, receives, sends bool) error {
	s, err := e.newSocket()
	if err != nil {
		return err
	}
	r, t := &rxQueue{fd: s.fd, target: n.fill}, &txQueue{fd: s.fd, kick: kickTx}
	if receives {
		e.rx = append(e.rx, r)
		if err := s.receiveRings(r, ceilPow2(n.fill)); err != nil {
			return err
		}
	} else if err := s.unused(unix.XDP_UMEM_FILL_RING); err != nil {
		return err
	}
	if sends {
		e.tx = append(e.tx, t)
		t.comp, err = s.completionRing(n.send)
	} else {
		err = s.unused(unix.XDP_UMEM_COMPLETION_RING)
	}
	if err == nil && !receives {
		t.tx, err = s.txRing(n.send)
	}
	if err != nil {
		return err
	}
	if err := s.bind(e.umem, e.umem.fd, e.ifindex, q); err != nil {
		return err
	}
	if sends {
		if err := e.openSending(q, n, t, receives); err != nil {
			return err
		}
	}
	if !receives {
		return nil
	}
	r.refill(e.umem)
	return e.redir.sockets.Put(uint32(q), uint32(s.fd))
}

// openSending completes the sending side of queue q, with a socket of its own beside one that receives.
func (e *End) openSending(q int, n split, t *txQueue, beside bool) error {
	s := socket{fd: t.fd}
	if beside {
		var err error
		if s, err = e.newSocket(); err != nil {
			return err
		}
		if t.tx, err = s.txRing(n.send); err != nil {
			return err
		}
		if err := s.bind(e.umem, t.fd, e.ifindex, q); err != nil {
			return err
		}
		t.fd = s.fd
	}
	return s.forSending(n.send)
}

// newSocket makes a socket that close closes.
func (e *End) newSocket() (socket, error) {
	s, err := newSocket()
	if err == nil {
		e.fds = append(e.fds, s.fd)
	}
	return s, err
}

// openEpoll makes what Rx.FD returns. Nobody waits on it: as it is watched itself, it passes events
// on, and it is ready when one of what it watches is.
func (e *End) openEpoll() (err error) {
	if e.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	watched := []int{e.watch}
	for _, q := range e.rx {
		watched = append(watched, q.fd)
	}
	for _, fd := range watched {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
		if err := unix.EpollCtl(e.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return fmt.Errorf("watch socket: %w", err)
		}
	}
	return nil
}

// places adds where the end's chunks are.
func (e *End) places(p *Places) {
	for _, q := range e.rx {
		p.Receiving += q.given
	}
	for _, q := range e.tx {
		p.Sending += q.out + q.staged()
	}
}

// close closes what open has opened. The program goes first: it would send frames to sockets
// that aren't there.
func (e *End) close() error {
	var errs []error
	if e.redir != nil {
		errs = append(errs, e.redir.close())
	}
	for _, q := range e.rx {
		errs = append(errs, q.fill.close(), q.rx.close())
	}
	for _, q := range e.tx {
		errs = append(errs, q.tx.close(), q.comp.close())
	}
	for _, fd := range append(e.fds, e.epfd, e.watch) {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	e.fds, e.epfd, e.watch = nil, -1, -1
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", e.name, err)
	}
	return nil
}
