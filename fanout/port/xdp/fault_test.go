package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// total is what a pair's places add up to.
func total(p *Pair) int {
	s := p.Places()
	return s.Free + s.Receiving + s.Sending
}

// TestSmallUMEM: with 64 frames and a receiver that is slow, what arrives is right, and what doesn't
// fit is counted.
func TestSmallUMEM(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{Frames: 64})
	r := newReader(t, p.A, p.B, 1)
	s := newStream(t, w, 0)
	r.start(t)
	s.start(t, 0)
	for range 20 {
		s.wait(t, s.got.Load()+500)
		time.Sleep(time.Millisecond) // the world's pauses, in which its queues fill
	}
	s.end(t)
	stats := r.rx.Stats()
	if rxed, sum := r.end(t); rxed == 0 || sum.Frames < s.got.Load() {
		t.Errorf("received %d, sent %+v, %d came", rxed, sum, s.got.Load())
	}
	if n := total(p); n != 64 {
		t.Errorf("%+v of 64 frames", p.Places())
	}
	t.Logf("%d came, drops in front of the port %v", s.got.Load(), stats.Drops)
}

// TestHalfDropped: of many frames half are dropped, each for its own reason. No chunk is lost, and
// the last frames cross as the first did.
func TestHalfDropped(t *testing.T) {
	const frames, batch = 256, 8
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{Frames: frames})
	rx, _ := halves(t, p.A)
	_, tx := halves(t, p.B)
	in, out := w.far(t, 0), w.far(t, 1)
	var b [port.MaxBatch]port.Frame
	var sum, want port.Tally
	for i := range 4000 {
		tooLong, down := i%8 == 1, i%8 == 3
		for j := range batch {
			f := make([]byte, 60+j)
			numbered(f, uint32(i*batch+j))
			if err := in.Send(nil, f); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		waitFor(t, "the batch", func() bool {
			n, err := rx.Receive(b[got:])
			if err != nil {
				t.Fatal(err)
			}
			got += n
			return got == batch
		})
		switch {
		case tooLong:
			for j := range b[:got] {
				b[j].Len = 1519
			}
			want.Drops[port.TxMTU] += batch
		case down:
			setLinks(t, w, i, false)
			want.Drops[port.TxLinkDown] += batch
		case i%4 == 0:
			rx.Release(3, b[:got])
			continue
		default:
			want.Frames += batch
		}
		tx.Send(rx, b[:got], &sum)
		if down {
			setLinks(t, w, i, true)
		}
	}
	if sum.Frames != want.Frames || sum.Drops != want.Drops {
		t.Errorf("tally %+v, want %+v", sum, want)
	}
	if n := total(p); n != frames {
		t.Errorf("%+v of %d frames", p.Places(), frames)
	}
	for came := uint64(0); came < want.Frames; came++ {
		if _, f, err := out.Recv(patience); f == nil {
			t.Fatalf("%d of %d came, error %v", came, want.Frames, err)
		}
	}
}

// setLinks sets bo down or up, or every other time bi, so that bo loses its carrier.
func setLinks(t *testing.T, w *world, i int, up bool) {
	t.Helper()
	v := w.veth[1]
	ns, name := v.OuterNS, v.Outer
	if i%16 < 8 {
		ns, name = v.InnerNS, v.Inner
	}
	if err := porttest.SetLink(ns, name, up); err != nil {
		t.Fatal(err)
	}
}

// far is the world behind the inner side of veth i.
func (w *world) far(t testing.TB, i int) *porttest.PacketFar {
	t.Helper()
	f, err := porttest.DialFar(w.veth[i].InnerNS, w.veth[i].Inner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestStarving: a queue whose chunks are all held says so, since no frame can wake it, and works on
// once they are released.
func TestStarving(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{Frames: 64})
	rx, _ := halves(t, p.A)
	in := w.far(t, 0)
	var held []port.Frame
	var b [port.MaxBatch]port.Frame
	var err error
	for range 64 {
		if err := in.Send(nil, make([]byte, 60)); err != nil {
			t.Fatal(err)
		}
		var n int
		if n, err = rx.Receive(b[:]); err != nil && !errors.Is(err, port.ErrNoBuffer) {
			t.Fatal(err)
		}
		held = append(held, b[:n]...)
	}
	if !errors.Is(err, port.ErrNoBuffer) {
		t.Fatalf("%d frames held, %+v, error %v", len(held), p.Places(), err)
	}
	if n, err := rx.Receive(b[:]); n != 0 || !errors.Is(err, port.ErrNoBuffer) {
		t.Errorf("received %d, error %v", n, err)
	}
	s := rx.Stats()
	if lost := s.Drops[port.RxRingFull]; lost != 64-uint64(len(held)) || s.Drops.Total() != lost {
		t.Errorf("%d held, drops %v", len(held), s.Drops)
	}
	rx.Release(1, held[:1])
	if n, err := rx.Receive(b[:]); n != 0 || err != nil {
		t.Errorf("after a release: received %d, error %v", n, err)
	}
	if err := in.Send(nil, make([]byte, 60)); err != nil {
		t.Fatal(err)
	}
	if n, _ := rx.Receive(b[:]); n != 1 {
		t.Errorf("after a release: received %d", n)
	}
	rx.Release(1, append(held[1:], b[0]))
}

// TestCloseTells: frames that were not released are missing, and Close says how many.
func TestCloseTells(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p, err := Open(w.config(PairConfig{Frames: 64}))
	if err != nil {
		t.Fatal(err)
	}
	rx, _ := halves(t, p.A)
	if err := w.far(t, 0).Send(nil, make([]byte, 60)); err != nil {
		t.Fatal(err)
	}
	var b [1]port.Frame
	if n, err := rx.Receive(b[:]); n != 1 {
		t.Fatalf("received %d, error %v", n, err)
	}
	if err := rx.Close(); err != nil {
		t.Fatal(err)
	}
	free := p.Places().Free
	err = p.Close()
	if err == nil || !strings.Contains(err.Error(), "64 frames") || !strings.Contains(err.Error(), fmt.Sprintf("Free:%d", free)) {
		t.Errorf("close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

// TestFullFarSide: frames leave as fast as one CPU can send them, into a far side with a queue of
// its own. None that the tally counts is lost on the way, and none is dropped.
func TestFullFarSide(t *testing.T) {
	w := newWorld(t, 1500, 1)
	s := newSink(t, w.veth[1].InnerNS, w.veth[1].InnerIndex, true)
	p := w.open(t, PairConfig{})
	rx, _ := halves(t, p.A)
	_, tx := halves(t, p.B)
	l := startLoad(t, w.veth[0].InnerNS, w.veth[0].InnerIndex, loadCPU, testFrame(64))
	var sum port.Tally
	done := make(chan uint64)
	go func() {
		rxed := uint64(0)
		var b [port.MaxBatch]port.Frame
		if err := pinned(workCPU); err != nil {
			t.Error(err)
		}
		for sum.Frames < 300_000 {
			n, _ := rx.Receive(b[:])
			rxed += uint64(n)
			tx.Send(rx, b[:n], &sum)
		}
		done <- rxed
	}()
	rxed := <-done
	l.end(t)
	if rxed != sum.Frames+sum.Drops.Total() || sum.Drops.Total() != 0 {
		t.Errorf("received %d, tally %+v", rxed, sum)
	}
	waitFor(t, fmt.Sprintf("%d frames to come, not %d", sum.Frames, s.frames(t)), func() bool { return s.frames(t) >= sum.Frames })
	if n := s.frames(t); n != sum.Frames {
		t.Errorf("%d frames came, %d left", n, sum.Frames)
	}
}

// TestSlowPathAllocs: the ways that a frame doesn't usually go allocate nothing either.
func TestSlowPathAllocs(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{})
	_, tx := halves(t, p.A)
	src := porttest.NewSource(make([]byte, 60), make([]byte, 1519), make([]byte, 60))
	frames := src.Frames()
	var sum port.Tally
	turn := func() { tx.Send(src, frames, &sum) }
	for _, state := range []string{"up", "no carrier", "down", "gone"} {
		var err error
		switch state {
		case "no carrier":
			err = porttest.SetLink(w.veth[0].InnerNS, "ai", false)
		case "down":
			err = porttest.SetLink(w.outer, "ao", false)
		case "gone":
			err = porttest.DeleteLink(w.outer, "ao")
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(50, turn); n != 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", state, n)
		}
	}
	for _, why := range []port.Reason{port.TxMTU, port.TxLinkDown, port.TxGone} {
		if sum.Drops[why] == 0 {
			t.Errorf("no %v: %+v", why, sum)
		}
	}
	if n := total(p); n != p.umem.chunks {
		t.Errorf("%+v of %d frames", p.Places(), p.umem.chunks)
	}
}
