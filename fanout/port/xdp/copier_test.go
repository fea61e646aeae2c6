package xdp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// copier is what a forwarder is without a UMEM that both ends share: each end has its own, and each
// frame is copied from one to the other. It makes a system call for each transmit whether
// or not the kernel asks for it. It stands in for libraries of that architecture, and is none of them.
type copier struct {
	rx    [2]*Rx
	tx    [2]*Tx
	batch [port.MaxBatch]port.Frame
}

func startCopier(t testing.TB, w *world) running {
	c := &copier{}
	var end []func() error
	for i, v := range w.veth {
		p, err := Open(PairConfig{A: EndConfig{NetNS: v.OuterNS.FD(), Ifindex: v.OuterIndex}, Frames: 2048})
		if err != nil {
			t.Fatal(err)
		}
		rx, tx := halves(t, p.A)
		c.rx[i], c.tx[i] = rx.(*Rx), tx.(*Tx)
		end = append(end, rx.Close, tx.Close, p.Close)
	}
	return spin(t, func() {
		c.forward(c.rx[0], c.tx[1])
		c.forward(c.rx[1], c.tx[0])
	}, end...)
}

// forward moves a batch: receive, copy, send, complete.
func (c *copier) forward(from *Rx, to *Tx) {
	n, _ := from.Receive(c.batch[:])
	var chunks [port.MaxBatch]uint32
	got := to.umem.free.take(chunks[:min(n, to.q.room())])
	for i := range got {
		addr := uint64(chunks[i]) << to.umem.shift
		copy(to.umem.bytes(addr, c.batch[i].Len), from.Bytes(&c.batch[i]))
		if debug {
			to.umem.owners.move(chunks[i], inPool, inHeld)
		}
		to.q.stage(to.umem, addr, c.batch[i].Len)
	}
	from.Release(0, c.batch[:n])
	for to.q.staged() > 0 {
		if _, e := to.q.push(); e != 0 && e != unix.EAGAIN && e != unix.EBUSY {
			break
		}
	}
	to.q.withdraw(to.umem)
	_ = kickTx(to.q.fd)
	to.q.reclaim(to.umem, none)
}
