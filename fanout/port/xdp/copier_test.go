package xdp

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// copier is a forwarder of the architecture that AF_XDP libraries for Go have, written for this
// comparison: it is none of them. Each end has one socket and a UMEM of its own, a frame is
// copied from one to the other, each transmit is one system call, whether or not the kernel wants it,
// and the loop waits in poll.
type copier struct {
	ends  [2]*copierEnd
	polls []unix.PollFd
}

// copierEnd is one socket.
type copierEnd struct {
	s                             socket
	mem                           []byte
	fill, comp                    ring[uint64]
	rx, tx                        ring[unix.XDPDesc]
	filled, completed, taken, put uint32
	free                          []uint64
	redir                         *redirect
}

const copierFrames, copierRing = 4096, 2048

func startCopier(t testing.TB, w *world) running {
	c := &copier{}
	for i, v := range w.veth {
		e := &copierEnd{}
		if err := v.OuterNS.Do(func() error { return e.open(v.OuterIndex) }); err != nil {
			t.Fatal(err)
		}
		c.ends[i] = e
		c.polls = append(c.polls, unix.PollFd{Fd: int32(e.s.fd), Events: unix.POLLIN})
	}
	return spin(t, c.turn, c.ends[0].close, c.ends[1].close)
}

func (e *copierEnd) open(ifindex int) (err error) {
	if e.mem, err = unix.Mmap(-1, 0, copierFrames*smallChunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
		return err
	}
	if e.s, err = newSocket(); err != nil {
		return err
	}
	var r rxQueue
	err = errors.Join(registerUMEM(e.s.fd, e.mem, smallChunk), e.s.receiveRings(&r, copierRing))
	if err != nil {
		return err
	}
	e.fill, e.rx = r.fill, r.rx
	if e.comp, err = e.s.completionRing(copierRing); err != nil {
		return err
	}
	if e.tx, err = e.s.txRing(copierRing); err != nil {
		return err
	}
	if err := unix.Bind(e.s.fd, &unix.SockaddrXDP{Ifindex: uint32(ifindex)}); err != nil {
		return err
	}
	for i := range uint64(copierFrames) {
		e.free = append(e.free, i*smallChunk)
	}
	e.refill()
	if e.redir, err = newRedirect(1); err != nil {
		return err
	}
	return errors.Join(e.redir.sockets.Put(uint32(0), uint32(e.s.fd)), e.redir.attach(&device{rx: 1}, ifindex))
}

// refill gives the kernel half of the frames for receiving.
func (e *copierEnd) refill() {
	for e.filled-e.taken < copierRing && len(e.free) > 0 {
		*e.fill.at(e.filled) = e.free[len(e.free)-1]
		e.free = e.free[:len(e.free)-1]
		e.filled++
	}
	e.fill.producer.Store(e.filled)
}

func (c *copier) turn() {
	if n, _ := unix.Poll(c.polls, 1); n > 0 {
		c.forward(c.ends[0], c.ends[1])
		c.forward(c.ends[1], c.ends[0])
	}
}

// forward receives a batch, copies it, sends it with one system call, and takes back what was sent.
func (c *copier) forward(from, to *copierEnd) {
	n := min(from.rx.producer.Load()-from.taken, port.MaxBatch)
	for ; n > 0; n-- {
		d := *from.rx.at(from.taken)
		from.taken++
		from.free = append(from.free, d.Addr&^(smallChunk-1))
		if len(to.free) == 0 || to.put-to.tx.consumer.Load() == copierRing {
			continue
		}
		addr := to.free[len(to.free)-1]
		to.free = to.free[:len(to.free)-1]
		copy(to.mem[addr:][:d.Len], from.mem[d.Addr:][:d.Len])
		*to.tx.at(to.put) = unix.XDPDesc{Addr: addr, Len: d.Len}
		to.put++
	}
	from.rx.consumer.Store(from.taken)
	to.tx.producer.Store(to.put)
	_ = kickTx(to.s.fd)
	for done := to.comp.producer.Load(); to.completed != done; to.completed++ {
		to.free = append(to.free, *to.comp.at(to.completed))
	}
	to.comp.consumer.Store(to.completed)
	from.refill()
}

func (e *copierEnd) close() error {
	return errors.Join(e.redir.close(), e.fill.close(), e.comp.close(), e.rx.close(), e.tx.close(), unix.Close(e.s.fd), unix.Munmap(e.mem))
}
