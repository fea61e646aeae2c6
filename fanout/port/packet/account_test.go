package packet

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// TestFullQueue: the tally says exactly which frames a full far queue took, and they
// are the first ones, in order.
func TestFullQueue(t *testing.T) {
	w := newWorld(t, 1500, 4)
	fd, ifindex := tapDevice(t, w.outer, 0, 24)
	s := w.sender(t)
	x, err := s.Tx(ifindex, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 40 {
		var frames [][]byte
		for i := range 64 {
			frames = append(frames, frame(100*round+i, 60+(i*round)%1400))
		}
		sum := send(t, x, porttest.NewSource(frames...))
		got := drainTap(t, fd)
		if sum.Frames != 24 || sum.Drops[port.TxBusy] != 40 {
			t.Fatalf("round %d: sent %+v, want 24 frames and 40 tx_busy", round, sum)
		}
		for i, n := range got {
			if n != 100*round+i || len(got) != 24 {
				t.Fatalf("round %d: the far side got %v", round, got)
			}
		}
	}
	// The ring works on, also for another interface.
	if sum := send(t, w.tx(t, s, w.b), porttest.NewSource(frame(1, 60), frame(2, 60))); sum.Frames != 2 {
		t.Fatalf("after a full queue: %+v", sum)
	}
}

// TestSlowQueue: while the far side empties its queue, what it gets is exactly what the tally says.
func TestSlowQueue(t *testing.T) {
	w := newWorld(t, 1500, 4)
	fd, ifindex := tapDevice(t, w.outer, 0, 16)
	x, err := w.sender(t).Tx(ifindex, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	stop, got := make(chan struct{}), make(chan []int, 1)
	go func() {
		var all []int
		for {
			select {
			case <-stop:
				got <- append(all, drainTap(t, fd)...)
				return
			default:
				all = append(all, drainTap(t, fd)...)
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	var sum port.Tally
	for round := range 300 {
		var frames [][]byte
		for i := range 1 + round%64 {
			frames = append(frames, frame(64*round+i, []int{60, 200, 1500, 700}[i%4]))
		}
		one := send(t, x, porttest.NewSource(frames...))
		sum.Frames += one.Frames
		sum.Drops.Add(&one.Drops)
	}
	close(stop)
	all := <-got
	if uint64(len(all)) != sum.Frames {
		t.Errorf("the far side got %d frames, the tally says %+v", len(all), sum)
	}
	for i := 1; i < len(all); i++ {
		if all[i] <= all[i-1] {
			t.Fatalf("frame %d came after %d", all[i], all[i-1])
		}
	}
}

// TestRefusedFrames: a frame with an impossible virtio_net_hdr is dropped alone.
func TestRefusedFrames(t *testing.T) {
	w := newWorld(t, 9000, 4)
	s := w.sender(t)
	x, far := w.tx(t, s, w.b), w.far(t, w.b)
	const n = 40
	for _, size := range []int{100, 3000} { // by the ring, by the second socket
		var frames [][]byte
		for i := range n {
			frames = append(frames, frame(i, size))
		}
		src := porttest.NewSource(frames...)
		bad := porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, 60000, 16)
		var want []int
		for i := range n {
			if i%3 == 0 || i == n-1 {
				src.SetHdr(i, bad)
			} else {
				want = append(want, i)
			}
		}
		sum := send(t, x, src)
		if sum.Frames != uint64(len(want)) || sum.Drops[port.TxInvalid] != uint64(n-len(want)) {
			t.Fatalf("%d bytes: %+v, want %d frames and %d tx_invalid", size, sum, len(want), n-len(want))
		}
		expect(t, far, want)
	}
}

// TestFullRing: slots that the kernel still has are not overwritten, and what
// finds no slot is counted.
func TestFullRing(t *testing.T) {
	w := newWorld(t, 1500, 4)
	s, err := OpenSender(SenderConfig{NetNS: w.outer.FD(), Slots: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, far := w.tx(t, s, w.b), w.far(t, w.b)
	var frames [][]byte
	for i := range 40 {
		frames = append(frames, frame(i, 60))
	}
	if sum := send(t, x, porttest.NewSource(frames...)); sum.Frames != 40 {
		t.Fatalf("a ring smaller than the batch: %+v", sum)
	}
	expect(t, far, counting(0, 40))
	// As a network card does that hasn't sent them yet:
	for i := range uint32(20) {
		s.ring.hdr(s.head + 12 + i).status.Store(unix.TP_STATUS_SENDING)
	}
	if sum := send(t, x, porttest.NewSource(frames...)); sum.Frames != 12 || sum.Drops[port.TxRingFull] != 28 {
		t.Fatalf("12 free slots: %+v, want 12 frames and 28 tx_ring_full", sum)
	}
	expect(t, far, counting(0, 12))
	for i := range s.ring.mask + 1 {
		s.ring.hdr(i).status.CompareAndSwap(unix.TP_STATUS_SENDING, unix.TP_STATUS_AVAILABLE)
	}
	if sum := send(t, x, porttest.NewSource(frames...)); sum.Frames != 40 {
		t.Fatalf("after the slots came back: %+v", sum)
	}
	expect(t, far, counting(0, 40))
}
