package port

import (
	"encoding/binary"
	"sync"
	"testing"
)

func newArena(t *testing.T, n int) *Arena {
	t.Helper()
	a, err := NewArena(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestBufferHoldsTheLongestFrame(t *testing.T) {
	if need := MaxFrameLen + VNetHdrLen + 4; BufferLen < need || BufferLen%4096 != 0 {
		t.Errorf("a buffer has %d bytes, needs %d in whole pages", BufferLen, need)
	}
}

func TestArenaRunsOutAndRecovers(t *testing.T) {
	const n = 5
	a := newArena(t, n)
	for round := range 3 {
		have := map[uint32]bool{}
		for i := range n {
			slot, ok := a.Get()
			if !ok || int(slot) >= a.Len() || have[slot] {
				t.Fatalf("round %d: buffer %d of %d is %d, %v", round, i, n, slot, ok)
			}
			have[slot] = true
			b := a.Buffer(slot)
			if len(b) != BufferLen || cap(b) != BufferLen {
				t.Fatalf("buffer of %d bytes, room for %d", len(b), cap(b))
			}
			b[0], b[BufferLen-1] = byte(slot), byte(slot)
		}
		if _, ok := a.Get(); ok || a.InUse() != n {
			t.Fatalf("round %d: got more than %d buffers, %d in use", round, n, a.InUse())
		}
		for slot := range have {
			if b := a.Buffer(slot); b[0] != byte(slot) || b[BufferLen-1] != byte(slot) {
				t.Errorf("buffer %d overlaps another", slot)
			}
			a.Put(slot)
		}
		if a.InUse() != 0 {
			t.Fatalf("round %d: %d in use after all were put back", round, a.InUse())
		}
	}
}

// TestArenaIsSharedByWorkers: others put back what the owner got, in any order, and
// no buffer is ever in two hands.
func TestArenaIsSharedByWorkers(t *testing.T) {
	const n, workers, frames = 8, 3, 30_000
	a := newArena(t, n)
	var wg sync.WaitGroup
	queue := make(chan [2]uint32, n) // buffer and the number written into it
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for q := range queue {
				if got := binary.NativeEndian.Uint32(a.Buffer(q[0])); got != q[1] {
					t.Errorf("buffer %d holds %d, want %d", q[0], got, q[1])
				}
				a.Put(q[0])
			}
		}()
	}
	for i := uint32(0); i < frames; {
		slot, ok := a.Get()
		if !ok {
			continue
		}
		binary.NativeEndian.PutUint32(a.Buffer(slot), i)
		queue <- [2]uint32{slot, i}
		i++
	}
	close(queue)
	wg.Wait()
	if a.InUse() != 0 {
		t.Errorf("%d buffers are in use", a.InUse())
	}
}

func TestArenaReusesTheWarmestBuffer(t *testing.T) {
	a := newArena(t, 8)
	var slots [4]uint32
	for i := range slots {
		slots[i], _ = a.Get()
	}
	for _, i := range []int{2, 0, 3, 1} {
		a.Put(slots[i])
	}
	for _, i := range []int{1, 3, 0, 2} {
		if got, ok := a.Get(); !ok || got != slots[i] {
			t.Errorf("got buffer %d, %v, want %d", got, ok, slots[i])
		}
	}
	for _, slot := range slots {
		a.Put(slot)
	}
}

// A handle that was turned takes from the other arena, and the frames of its old one are untouched.
func TestViewTurns(t *testing.T) {
	a, b := newArena(t, 2), newArena(t, 3)
	v := a.View()
	slot, ok := v.Get()
	if !ok || a.InUse() != 1 || b.InUse() != 0 {
		t.Fatalf("a view took buffer %d, %v; in use: %d and %d", slot, ok, a.InUse(), b.InUse())
	}
	a.Put(slot)
	v.Turn(b)
	for range 3 {
		if _, ok := v.Get(); !ok {
			t.Fatal("a turned view doesn't get the other arena's buffers")
		}
	}
	if a.InUse() != 0 || b.InUse() != 3 {
		t.Errorf("in use: %d and %d, want 0 and 3", a.InUse(), b.InUse())
	}
	for slot := range uint32(3) {
		v.Put(slot)
	}
	if b.InUse() != 0 {
		t.Errorf("%d buffers weren't given back", b.InUse())
	}
}
