package memport

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// far is the network behind a Device.
type far struct {
	d   *Device
	buf []byte
}

func (f *far) Send(h *porttest.Hdr, frame []byte) error {
	var hdr []byte
	if h != nil {
		hdr = h[:]
	}
	before := f.lost()
	if f.d.Inject(0, hdr, frame) || f.lost() != before {
		return nil // it reached the queue, where it may be lost
	}
	return unix.ENETDOWN
}

func (f *far) lost() uint64 {
	s := f.d.queues[0].Stats()
	return s.Drops.Total()
}

func (f *far) Recv(wait time.Duration) (h porttest.Hdr, frame []byte, err error) {
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Microsecond) {
		if n := f.d.Capture(f.buf); n > 0 {
			return porttest.Hdr(f.buf), f.buf[port.VNetHdrLen:n], nil
		}
		if time.Now().After(end) {
			return h, nil, nil
		}
	}
}

func (f *far) Close() error { return nil }

func TestPort(t *testing.T) {
	const slots = 64
	open := func(t *testing.T) *porttest.Rig {
		arena, err := port.NewArena(16)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = arena.Close() })
		return &porttest.Rig{A: end(t, arena, slots), B: end(t, arena, slots), Arena: arena}
	}
	porttest.Run(t, porttest.Caps{MaxFrame: 9014, Ring: slots, GSO: true, Arena: true}, open)
}

func end(t *testing.T, arena *port.Arena, slots int) porttest.End {
	d := New(Config{Slots: slots, SlotLen: 1000, MTU: 9000, Out: 1024})
	w := port.Worker{Arena: arena}
	rx, err := d.OpenRx(w)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := d.OpenTx(w)
	if err != nil {
		t.Fatal(err)
	}
	return porttest.End{
		Rx: rx, Tx: tx, Far: &far{d: d, buf: make([]byte, port.VNetHdrLen+port.MaxFrameLen)},
		SetLink: func(up bool) error { d.SetLink(up); return nil },
		Delete:  func() error { d.Delete(); return nil },
	}
}

func TestFullDeviceIsBusy(t *testing.T) {
	d := New(Config{Out: 2})
	tx, err := d.OpenTx(port.Worker{})
	if err != nil {
		t.Fatal(err)
	}
	src := porttest.NewSource(make([]byte, 60), make([]byte, 60), make([]byte, 60))
	var sum port.Tally
	tx.Send(src, src.Frames(), &sum)
	if sum.Frames != 2 || sum.Drops[port.TxBusy] != 1 {
		t.Errorf("sent 3 frames into room for 2: %+v", sum)
	}
	if err := src.Check(); err != nil {
		t.Error(err)
	}
}

func TestQueuesAreApart(t *testing.T) {
	d := New(Config{})
	var rx [2]port.Rx
	for i := range rx {
		var err error
		if rx[i], err = d.OpenRx(port.Worker{ID: i}); err != nil {
			t.Fatal(err)
		}
	}
	if d.Inject(2, nil, make([]byte, 60)) {
		t.Error("a queue that nobody opened took a frame")
	}
	d.Inject(1, nil, make([]byte, 77))
	b := make([]port.Frame, 4)
	if n, err := rx[0].Receive(b); n != 0 || err != nil {
		t.Errorf("queue 0: %d frames, error %v", n, err)
	}
	if n, err := rx[1].Receive(b); n != 1 || err != nil || b[0].Len != 77 {
		t.Errorf("queue 1: %d frames, error %v, first %+v", n, err, b[0])
	}
}

func TestDeletedDeviceOpensNothing(t *testing.T) {
	d := New(Config{})
	d.Delete()
	if _, err := d.OpenRx(port.Worker{}); !errors.Is(err, port.ErrGone) {
		t.Errorf("open: %v, want ErrGone", err)
	}
	if _, err := d.OpenTx(port.Worker{}); !errors.Is(err, port.ErrGone) {
		t.Errorf("open: %v, want ErrGone", err)
	}
}
