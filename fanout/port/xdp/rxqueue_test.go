package xdp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// newRxQueue is a receiving side with its rings in plain memory.
func newRxQueue(t *testing.T, chunks, target int) (*rxQueue, *umem) {
	t.Helper()
	u, err := newUMEM(chunks, smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.close() })
	n := ceilPow2(target)
	return &rxQueue{fill: memoryRing[uint64](n), rx: memoryRing[unix.XDPDesc](n), target: target}, u
}

// arrive puts descriptors on the rx ring.
func (q *rxQueue) arrive(ds ...unix.XDPDesc) {
	p := q.rx.producer.Load()
	for _, d := range ds {
		*q.rx.at(p) = d
		p++
	}
	q.rx.producer.Store(p)
}

func TestInvalidDescriptors(t *testing.T) {
	const chunks, target = 64, 32
	end := uint64(chunks * smallChunk)
	for _, d := range []unix.XDPDesc{
		{Addr: end, Len: 60},
		{Addr: end - 59, Len: 60},
		{Addr: smallChunk - 59, Len: 60},
		{Addr: headroom, Len: smallChunk},
		{Addr: headroom, Len: 0},
		{Addr: headroom, Len: 1<<32 - 1},
		{Addr: 1<<64 - 1, Len: 60},
		{Addr: 1<<64 - 1, Len: 1},
	} {
		q, u := newRxQueue(t, chunks, target)
		q.refill(u)
		good := unix.XDPDesc{Addr: headroom, Len: 60}
		q.arrive(good, d, unix.XDPDesc{Addr: smallChunk + headroom, Len: smallChunk - headroom})
		var b [port.MaxBatch]port.Frame
		n := q.receive(u, b[:])
		if n != 2 || b[0] != (port.Frame{Off: headroom, Len: 60}) || b[1].Slot != 1 || b[1].Len != smallChunk-headroom {
			t.Errorf("%+v between two frames: received %d, %+v", d, n, b[:n])
		}
		if q.invalid.Load() != 1 || u.lost.Load() != 1 || q.given != target-3 {
			t.Errorf("%+v: %d invalid, %d lost, %d given", d, q.invalid.Load(), u.lost.Load(), q.given)
		}
	}
}

// TestImpossibleIndex: a producer index from nowhere is no frames, and no endless loop.
func TestImpossibleIndex(t *testing.T) {
	q, u := newRxQueue(t, 64, 32)
	q.refill(u)
	q.rx.producer.Store(1 << 31)
	var b [port.MaxBatch]port.Frame
	if n := q.receive(u, b[:]); n != 0 || q.invalid.Load() != 1 {
		t.Errorf("received %d frames, %d invalid", n, q.invalid.Load())
	}
	q.arrive(unix.XDPDesc{Addr: headroom, Len: 60})
	if n := q.receive(u, b[:]); n != 1 {
		t.Errorf("received %d frames afterwards", n)
	}
}

// TestRefill: the kernel gets what is there, and no more than it is to have.
func TestRefill(t *testing.T) {
	q, u := newRxQueue(t, 100, 80)
	q.refill(u)
	if q.given != 80 || u.free.len() != 20 || q.fill.producer.Load() != 80 {
		t.Fatalf("%d given, %d free, producer %d", q.given, u.free.len(), q.fill.producer.Load())
	}
	c := make([]uint32, 15)
	u.free.take(c)
	q.given -= 40 // as if 40 frames had been received and are held
	q.refill(u)
	if q.given != 45 || u.free.len() != 0 {
		t.Errorf("%d given, %d free", q.given, u.free.len())
	}
	seen := map[uint64]bool{}
	for i := range q.fill.producer.Load() {
		if a := *q.fill.at(i); i >= 80 && seen[a] || a%smallChunk != 0 || a >= 100*smallChunk {
			t.Errorf("fill entry %d is %d", i, a)
		} else {
			seen[a] = true
		}
	}
}
