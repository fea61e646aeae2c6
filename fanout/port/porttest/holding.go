package porttest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/epair-net/epair/fanout/port"
)

// held is a frame that the suite keeps for a while.
type held struct {
	f    port.Frame
	size int
}

func (h *held) check(t *testing.T, e *End) {
	t.Helper()
	if err := check(frameOf(e.Rx, &h.f), seqOf(frameOf(e.Rx, &h.f)), h.size); err != nil {
		t.Errorf("held frame changed: %v", err)
	}
}

// frameOf returns the frame without its virtio_net_hdr.
func frameOf(src port.Source, f *port.Frame) []byte {
	b := src.Bytes(f)
	if f.Flags&port.VNet != 0 {
		return b[port.VNetHdrLen:]
	}
	return b
}

// testRelease: frames are released out of order by other goroutines while
// others are received.
func testRelease(t *testing.T, l *lab) {
	const workers = 3
	var wg sync.WaitGroup
	defer wg.Wait()
	queues := make([]chan held, workers)
	for w := range queues {
		queues[w] = make(chan held, 4)
		defer close(queues[w])
		wg.Add(1)
		go func() {
			defer wg.Done()
			releaser(t, l, w, queues[w])
		}()
	}
	r := rand.New(rand.NewPCG(1, 2))
	all := sizes(6000, min(l.caps.MaxFrame, 4000))
	next := uint32(0) // the number of the next frame to come
	for base := 0; base < len(all); base += 16 {
		run := all[base:min(base+16, len(all))]
		for i, size := range run {
			l.inject(t, &l.A, nil, newFrame(uint32(base+i), size))
		}
		l.drain(t, &l.A, func() {
			for _, f := range l.receive(t, &l.A) {
				seq := seqOf(frameOf(l.A.Rx, &f))
				if seq < next {
					t.Errorf("frame %d came after %d", seq, next-1)
				}
				next = seq + 1
				queues[r.IntN(workers)] <- held{f, all[seq]}
			}
		})
	}
}

// releaser keeps a few frames and releases them in random order.
func releaser(t *testing.T, l *lab, id int, in <-chan held) {
	r := rand.New(rand.NewPCG(3, uint64(id)))
	var kept []held
	release := func() {
		i := r.IntN(len(kept))
		kept[i].check(t, &l.A)
		l.A.Rx.Release(id, []port.Frame{kept[i].f})
		kept[i] = kept[len(kept)-1]
		kept = kept[:len(kept)-1]
	}
	// Three workers keep 12 frames at most: fewer than any arena has buffers.
	for h := range in {
		if kept = append(kept, h); len(kept) > 3 {
			release()
		}
	}
	for len(kept) > 0 {
		release()
	}
}

// testHold: a frame that is held while the ring wraps stays as it is and is
// never received again; what found no room meanwhile is counted; after its
// release all flows again.
func testHold(t *testing.T, l *lab) {
	const number = 0xfffffff0 // of the held frame
	for _, size := range []int{60, min(l.caps.MaxFrame, 3000)} {
		l.inject(t, &l.A, nil, newFrame(number, size))
		var h held
		l.drain(t, &l.A, func() {
			if b := l.receive(t, &l.A); len(b) > 0 {
				h = held{b[0], size}
			}
		})
		for i := range uint32(3 * l.caps.Ring) {
			l.inject(t, &l.A, nil, newFrame(i, 60))
			if i%7 == 0 {
				l.takeAll(t, number)
			}
		}
		l.drain(t, &l.A, func() { l.takeAll(t, number) })
		h.check(t, &l.A)
		l.A.Rx.Release(0, []port.Frame{h.f})

		before := lost(&l.A)
		for i := range uint32(3 * l.caps.Ring) {
			l.inject(t, &l.A, nil, newFrame(i, 60))
			if i%7 == 0 {
				l.takeAll(t, number)
			}
		}
		l.drain(t, &l.A, func() { l.takeAll(t, number) })
		if now := lost(&l.A); now != before {
			t.Errorf("%d frames lost though nothing was held", now-before)
		}
	}
}

// takeAll receives and releases what is there, which must not be frame number.
func (l *lab) takeAll(t *testing.T, number uint32) {
	t.Helper()
	for {
		b := l.receive(t, &l.A)
		for i := range b {
			f := frameOf(l.A.Rx, &b[i])
			if seqOf(f) == number {
				t.Fatal("a frame that is still held was received again")
			}
			if err := check(f, seqOf(f), len(f)); err != nil {
				t.Fatal(err)
			}
		}
		l.A.Rx.Release(0, b)
		if len(b) < len(l.batch) {
			return
		}
	}
}

// testNoBuffer: with all arena buffers held, the next frame that needs one waits:
// Receive says so, loses nothing, and returns it once a buffer is free.
func testNoBuffer(t *testing.T, l *lab) {
	if !l.caps.Arena {
		t.Skip("every frame fits this port's own memory")
	}
	size, n := min(l.caps.MaxFrame, 4000), l.Arena.Len()
	if size < 3000 && !l.caps.GSO {
		t.Skip("no frame is long enough for an arena buffer")
	}
	var hdr *Hdr
	frame := func(seq int) []byte { return newFrame(uint32(seq), size) }
	if l.caps.GSO && size < 3000 {
		h, f := TCPFrame(IPv4, 20000, 1400, 0)
		hdr, frame = &h, func(int) []byte { return f }
	}
	for i := range n + 3 {
		l.inject(t, &l.A, hdr, frame(i))
	}
	var kept []port.Frame
	waitUntil(t, "the buffers to run out", func() bool {
		b, err := l.A.Rx.Receive(l.batch)
		kept = append(kept, l.batch[:b]...)
		return errors.Is(err, port.ErrNoBuffer)
	})
	if len(kept) != n {
		t.Fatalf("received %d frames into %d buffers", len(kept), n)
	}
	for i := range 3 {
		if got, err := l.A.Rx.Receive(l.batch); got != 0 || !errors.Is(err, port.ErrNoBuffer) {
			t.Fatalf("receive without a buffer: %d frames, error %v", got, err)
		}
		l.A.Rx.Release(1, kept[i:i+1])
		got, err := l.A.Rx.Receive(l.batch)
		if got != 1 || (err == nil) != (i == 2) {
			t.Fatalf("receive after a release: %d frames, error %v", got, err)
		}
		kept = append(kept, l.batch[0])
	}
	for i := range kept {
		if err := differ(frameOf(l.A.Rx, &kept[i]), frame(i)); err != nil && i >= 3 {
			t.Errorf("frame %d: %v", i, err)
		}
	}
	l.A.Rx.Release(0, kept[3:])
	if s := l.A.Rx.Stats(); s.Drops.Total() != 0 {
		t.Errorf("drops %v, want none", s.Drops)
	}
}
