package packet

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// pour sends frames into a far side until the returned function is called. What the
// network doesn't take meanwhile is nobody's loss.
func pour(to *porttest.PacketFar) (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := 0; !done.Load(); i++ {
			_ = to.Send(nil, frame(i, mix[i%3]))
		}
	}()
	return func() { done.Store(true); wg.Wait() }
}

// TestFlapsUnderLoad: links go down and up while both directions are busy. Each
// time frames pass again, and the books balance in the end.
func TestFlapsUnderLoad(t *testing.T) {
	w := newWorld(t, 1500, 16)
	f := w.start(t, 0)
	fars := [2]*porttest.PacketFar{w.far(t, w.a), w.far(t, w.b)}
	defer pour(fars[0])()
	defer pour(fars[1])()
	for i := range 50 {
		v := []*porttest.Veth{w.a, w.b}[i%2]
		for _, up := range []bool{false, true} {
			if err := porttest.SetLink(w.outer, v.Outer, up); err != nil {
				t.Fatal(err)
			}
		}
		before := [2]uint64{f.got[0].Load(), f.got[1].Load()}
		for end := time.Now().Add(10 * time.Second); f.got[0].Load() == before[0] || f.got[1].Load() == before[1]; {
			if time.Now().After(end) {
				t.Fatalf("flap %d: nothing passes any more", i)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	f.check(t, 0)
	f.check(t, 1)
	if f.sent[0].Frames == 0 || f.sent[1].Frames == 0 {
		t.Errorf("sent %+v", f.sent)
	}
}

// TestDeleteUnderLoad: when one interface is deleted while both directions are
// busy, what was on its way to it is counted, and the other works on.
func TestDeleteUnderLoad(t *testing.T) {
	w := newWorld(t, 1500, 16)
	f := w.start(t, 0)
	defer pour(w.far(t, w.a))()
	defer pour(w.far(t, w.b))()
	for end := time.Now().Add(10 * time.Second); f.got[0].Load() < 1000 || f.got[1].Load() < 1000; {
		if time.Now().After(end) {
			t.Fatalf("received only %d and %d frames", f.got[0].Load(), f.got[1].Load())
		}
		time.Sleep(time.Millisecond)
	}
	if err := porttest.DeleteLink(w.outer, w.a.Outer); err != nil {
		t.Fatal(err)
	}
	mark := f.got[1].Load()
	for end := time.Now().Add(10 * time.Second); f.got[1].Load() < mark+1000 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	f.check(t, 0)
	f.check(t, 1)
	if f.sent[1].Drops[port.TxGone] < 1000 {
		t.Errorf("sent to the deleted interface: %+v", f.sent[1])
	}
}
