package packet

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/porttest"
)

// mix are the lengths of one flow's frames: in slots, in the queue of longer
// ones, by the transmit ring and by the second socket.
var mix = []int{60, 200, 1500, 4000, 8900, 1957, 60, 2007}

// TestOrder: a flow of frames of all lengths keeps its order and loses only what is counted.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		setUp func(*testing.T, *world)
	}{
		{"veth", func(*testing.T, *world) {}},
		{"napi behind us", func(t *testing.T, w *world) { offloads(t, w.b.InnerNS, w.b.Inner, "gro", "on") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 9000, 64)
			c.setUp(t, w)
			f := w.start(t, 0)
			in, out := w.far(t, w.a), w.far(t, w.b)
			sent := make(chan uint64, 1)
			go func() { sent <- sendMix(t, in) }()
			came, last := uint64(0), -1
			take := func(wait time.Duration) {
				_, m, err := out.Recv(wait)
				if err != nil {
					t.Fatal(err)
				}
				if m == nil {
					return
				}
				i := number(m)
				if i <= last || !bytes.Equal(m, frame(i, mix[i%len(mix)])) {
					t.Fatalf("frame %d of %d bytes came after %d", i, len(m), last)
				}
				came, last = came+1, i
			}
			var total uint64
			for done := false; !done; {
				select {
				case total = <-sent:
					done = true
				default:
					take(time.Millisecond)
				}
			}
			for end := time.Now().Add(10 * time.Second); f.got[0].Load()+f.lost(0) < total && time.Now().Before(end); {
				take(time.Millisecond)
			}
			lost := f.check(t, 0)
			for end := time.Now().Add(10 * time.Second); came < f.sent[0].Frames && time.Now().Before(end); {
				take(time.Millisecond)
			}
			if came+lost != total || came != f.sent[0].Frames {
				t.Errorf("%d sent, %d came, %d lost; rx %v, tx %+v", total, came, lost, f.rx[0].Stats().Drops, f.sent[0])
			}
		})
	}
}

// sendMix sends frames of all lengths and returns how many the network took.
func sendMix(t *testing.T, to *porttest.PacketFar) (n uint64) {
	defer pinTo(t, firstCPU(t))()
	for i := range 60_000 {
		err := to.Send(nil, frame(i, mix[i%len(mix)]))
		if err == nil {
			n++
		} else if !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("send: %v", err)
		}
	}
	return n
}
