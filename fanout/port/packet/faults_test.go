package packet

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// TestTruncated: without room in the receive buffer, long frames are lost and
// counted, and the others aren't.
func TestTruncated(t *testing.T) {
	w := newWorld(t, 9000, 64)
	rx, far := w.rx(t, w.a, 512), w.far(t, w.a)
	if err := unix.SetsockoptInt(rx.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 40_000); err != nil {
		t.Fatal(err)
	}
	const n = 100
	for i := range n {
		if err := far.Send(nil, frame(i, []int{60, 5000}[i%2])); err != nil {
			t.Fatal(err)
		}
	}
	batch := make([]port.Frame, port.MaxBatch)
	short, long, last := 0, 0, -1
	var drops uint64
	for end := time.Now().Add(10 * time.Second); uint64(short+long)+drops < n && time.Now().Before(end); {
		got, err := rx.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch[:got] {
			f := rx.Bytes(&batch[i])[port.VNetHdrLen:]
			if i := number(f); i <= last || !bytes.Equal(f, frame(i, []int{60, 5000}[i%2])) {
				t.Fatalf("frame %d after %d", i, last)
			}
			if last = number(f); len(f) == 60 {
				short++
			} else {
				long++
			}
		}
		rx.Release(0, batch[:got])
		s := rx.Stats()
		drops = s.Drops[port.RxTruncated]
	}
	if short != n/2 || long == 0 || drops == 0 || uint64(long)+drops != n/2 {
		t.Errorf("of %d short and %d long frames came %d and %d, %d truncated", n/2, n/2, short, long, drops)
	}
}

// TestNoCarrier: frames for a veth whose other side is down are dropped for that reason.
func TestNoCarrier(t *testing.T) {
	w := newWorld(t, 1500, 4)
	x := w.tx(t, w.sender(t), w.b)
	if err := porttest.SetLink(w.b.InnerNS, w.b.Inner, false); err != nil {
		t.Fatal(err)
	}
	// The kernel shows the lost carrier a little later than it acts on it.
	for end := time.Now().Add(10 * time.Second); ; {
		sum := send(t, x, porttest.NewSource(frame(1, 60), frame(2, 1500), frame(3, 60)))
		if sum.Drops[port.TxLinkDown] == 3 {
			break
		}
		if sum.Frames != 0 || time.Now().After(end) {
			t.Fatalf("no carrier: %+v, want 3 tx_link_down", sum)
		}
	}
	if err := porttest.SetLink(w.b.InnerNS, w.b.Inner, true); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if sum := send(t, x, porttest.NewSource(frame(1, 60), frame(2, 1500))); sum.Frames == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing leaves after the carrier came back")
		}
	}
}

// TestOpenErrors: what can't be opened says what, and leaves nothing open.
func TestOpenErrors(t *testing.T) {
	w := newWorld(t, 1500, 4)
	for _, c := range []struct {
		cfg  RxConfig
		want string
	}{
		{RxConfig{Ifindex: 9999}, "receive from interface 9999: bind packet socket: no such device"},
		{RxConfig{Ifindex: 1, Slots: 1000}, "make a ring of 1000 slots: not a power of two"},
		{RxConfig{Ifindex: 1, SlotLen: 100}, "make a ring of slots of 100 bytes: not a power of two from 256 to 65536"},
	} {
		c.cfg.NetNS = w.outer.FD()
		if _, err := OpenRx(c.cfg, w.worker()); fmt.Sprint(err) != c.want {
			t.Errorf("open %+v:\n got %v\nwant %s", c.cfg, err, c.want)
		}
	}
	if _, err := OpenSender(SenderConfig{Slots: 3}); err == nil {
		t.Error("a sender with 3 slots was opened")
	}
}
