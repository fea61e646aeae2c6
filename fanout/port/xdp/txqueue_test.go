package xdp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// bench is a Tx with a kernel of our own behind it.
type bench struct {
	x *Tx
	k *kernel
	u *umem
}

// newBench makes a Tx that believes itself on the loopback interface of a namespace, which is up.
func newBench(t *testing.T, chunks, size int, r *rand.Rand) *bench {
	t.Helper()
	u, err := newUMEM(chunks, smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.close() })
	ns := porttest.NewNS(t)
	if err := porttest.SetLink(ns, "lo", true); err != nil {
		t.Fatal(err)
	}
	e := &End{name: "lo", ifindex: 1, umem: u}
	if err := ns.Do(func() (err error) { e.watch, err = newWatch(1); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(e.watch) })
	q := &txQueue{tx: memoryRing[unix.XDPDesc](size), comp: memoryRing[uint64](size)}
	return &bench{x: &Tx{end: e, umem: u, q: q, longest: 1518}, k: newKernel(q, u, r), u: u}
}

// take makes a batch of n frames with running numbers, as far as there are chunks.
func (b *bench) take(n int, seq *uint32) []port.Frame {
	c := make([]uint32, n)
	var frames []port.Frame
	for _, c := range c[:b.u.free.take(c)] {
		f := port.Frame{Off: uint64(c)<<b.u.shift + headroom, Len: 60 + *seq%1000, Slot: c}
		if debug {
			b.u.owners.move(c, inPool, inHeld)
		}
		binary.NativeEndian.PutUint32(b.u.bytes(f.Off, f.Len), *seq)
		*seq++
		frames = append(frames, f)
	}
	return frames
}

// TestSendAgainstKernel sends batches to a kernel that does all that one may do, in
// every order. Each frame is delivered or counted, order holds, and every chunk comes back.
func TestSendAgainstKernel(t *testing.T) {
	for _, c := range []struct {
		size    int
		returns bool
	}{{256, false}, {256, true}, {64, false}, {64, true}, {8, false}, {8, true}, {4, true}} {
		t.Run(fmt.Sprintf("%d entries, returns %t", c.size, c.returns), func(t *testing.T) {
			for seed := range uint64(8) {
				againstKernel(t, c.size, c.returns, rand.New(rand.NewPCG(seed, uint64(c.size))))
			}
		})
	}
}

func againstKernel(t *testing.T, size int, returns bool, r *rand.Rand) {
	const chunks = 600
	b := newBench(t, chunks, size, r)
	b.k.returns = returns
	src := &Rx{umem: b.u}
	var seq, offered uint32
	var sum port.Tally
	numbers := map[uint32]bool{}
	last := -1
	for turn := range 400 {
		b.k.flaky = r.IntN(3) > 0
		b.k.full = r.IntN(12) == 0
		b.k.down = r.IntN(8) == 0
		b.k.gone = turn >= 390
		b.k.complete(r.IntN(size))
		frames := b.take(1+r.IntN(port.MaxBatch), &seq)
		offered += uint32(len(frames))
		b.k.delivered = b.k.delivered[:0]
		b.x.Send(src, frames, &sum)
		for _, addr := range b.k.delivered {
			n := binary.NativeEndian.Uint32(b.u.bytes(addr, 4))
			if numbers[n] || int(n) <= last {
				t.Fatalf("turn %d: frame %d left after %d, or twice", turn, n, last)
			}
			numbers[n], last = true, int(n)
		}
		if b.k.fault != "" {
			t.Fatalf("turn %d: %s", turn, b.k.fault)
		}
		if q := b.x.q; q.staged() != 0 {
			t.Fatalf("turn %d: %d frames are left on the ring", turn, q.staged())
		}
		if sum.Frames != uint64(len(numbers)) || sum.Frames+sum.Drops.Total() != uint64(offered) {
			t.Fatalf("turn %d: %d delivered, %d offered, tally %+v", turn, len(numbers), offered, sum)
		}
	}
	b.k.complete(chunks)
	b.x.q.reclaim(b.u, none)
	if n := b.u.free.len(); n != chunks || b.x.q.out != 0 || b.u.lost.Load() != 0 {
		t.Fatalf("%d of %d chunks came back, %d are out, %d lost", n, chunks, b.x.q.out, b.u.lost.Load())
	}
	if sum.Frames == 0 || sum.Drops[port.TxLinkDown] == 0 || sum.Drops[port.TxGone] == 0 {
		t.Errorf("not everything happened: %+v", sum)
	}
}

// TestSendRetries: a far side that has no room now and then loses nothing, as long as
// there are retries.
func TestSendRetries(t *testing.T) {
	b := newBench(t, 256, 128, rand.New(rand.NewPCG(1, 1)))
	src := &Rx{umem: b.u}
	var seq uint32
	var sum port.Tally
	for range 200 {
		n := 0
		xmit := b.x.q.kick
		b.x.q.kick = func(fd int) unix.Errno { // every other call finds it full
			n++
			b.k.full = n%2 == 0 && n < retries
			return xmit(fd)
		}
		b.x.Send(src, b.take(port.MaxBatch, &seq), &sum)
		b.x.q.kick = xmit
		b.k.full = false
		b.k.complete(256)
	}
	if sum.Frames != uint64(seq) || b.k.refused == 0 {
		t.Errorf("%d frames, %d refused and tried again, tally %+v", seq, b.k.refused, sum)
	}
}
