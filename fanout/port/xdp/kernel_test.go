package xdp

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// ringOffsetsOf lays a ring's parts out as a kernel with 64-byte cache lines does.
var ringOffsetsOf = unix.XDPRingOffset{Producer: 0, Consumer: 128, Flags: 256, Desc: 320}

// memoryRing is a ring in plain memory.
func memoryRing[T uint64 | unix.XDPDesc](n int) ring[T] {
	return viewRing[T](make([]byte, 320+16*n), &ringOffsetsOf, n)
}

// kernel is the other side of a txQueue: it does what __xsk_generic_xmit of Linux 6.18 does, with
// the errors that real devices make rare.
type kernel struct {
	q         *txQueue
	u         *umem
	rand      *rand.Rand
	returns   bool // what is skipped is returned (later kernels)
	prod      uint32
	cons      uint32
	pending   []uint64 // taken, not completed yet
	delivered []uint64 // addresses in the order in which they left
	refused   int      // completed and not sent
	down      bool
	gone      bool
	full      bool // the far side takes nothing
	flaky     bool // it takes nothing now and then
	fault     string
}

func newKernel(q *txQueue, u *umem, r *rand.Rand) *kernel {
	k := &kernel{q: q, u: u, rand: r}
	q.tx.flags.Store(unix.XDP_RING_NEED_WAKEUP)
	q.kick = func(int) unix.Errno { return k.xmit() }
	return k
}

// chance is true one time in n.
func (k *kernel) chance(n int) bool { return k.flaky && k.rand.IntN(n) == 0 }

// complete returns up to n frames, in random order, as skbs are freed.
func (k *kernel) complete(n int) {
	for ; n > 0 && len(k.pending) > 0; n-- {
		i := k.rand.IntN(len(k.pending))
		k.returnChunk(k.pending[i])
		k.pending = append(k.pending[:i], k.pending[i+1:]...)
	}
}

func (k *kernel) returnChunk(addr uint64) {
	p := k.q.comp.producer.Load()
	*k.q.comp.at(p) = addr
	k.q.comp.producer.Store(p + 1)
}

// room tells whether the completion ring has room for one more.
func (k *kernel) room() bool {
	return int(k.q.comp.producer.Load()-k.q.comp.consumer.Load())+len(k.pending) < k.q.size()
}

// peek returns the next descriptor, refreshing the kernel's copies of the indices as it does.
func (k *kernel) peek() (d unix.XDPDesc, valid, empty bool) {
	if k.prod == k.cons {
		k.q.tx.consumer.Store(k.cons)
		k.prod = k.q.tx.producer.Load()
	}
	if p := k.q.tx.producer.Load(); int32(p-k.prod) < 0 || int(p-k.cons) > len(k.q.tx.desc) {
		k.fault = fmt.Sprintf("producer index %d, which was seen to be %d; consumer index %d", p, k.prod, k.cons)
	}
	if k.prod == k.cons {
		return d, false, true
	}
	d = *k.q.tx.at(k.cons)
	return d, k.u.holds(d.Addr, d.Len), false
}

func (k *kernel) xmit() (e unix.Errno) {
	switch {
	case k.gone:
		return unix.ENXIO
	case k.down:
		return unix.ENETDOWN
	}
	sent := false
	defer func() {
		if sent {
			k.q.tx.consumer.Store(k.cons)
		}
		k.complete(k.rand.IntN(100))
	}()
	for budget := 32; ; budget-- {
		d, valid, empty := k.peek()
		switch {
		case empty:
			return 0
		case !valid:
			k.cons++
			if k.returns {
				k.returnChunk(d.Addr)
			}
			return 0
		case budget == 0, !k.room():
			return unix.EAGAIN
		case k.chance(40):
			return unix.ENOBUFS
		case k.full && !k.flaky, k.chance(30):
			if k.rand.IntN(2) == 0 {
				return unix.EAGAIN // NETDEV_TX_BUSY
			}
			k.cons++
			k.refused++
			k.returnChunk(d.Addr)
			return unix.EBUSY
		case k.chance(200):
			k.down = true
		}
		k.cons++
		k.delivered = append(k.delivered, d.Addr)
		k.pending = append(k.pending, d.Addr)
		sent = true
		if k.down {
			return unix.EAGAIN
		}
	}
}
