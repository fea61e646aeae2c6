package packet

import (
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/vishvananda/netlink"
)

var _ port.Opener = (*End)(nil)

// TestEnd: every worker has one Sender in a namespace, whatever it sends by.
func TestEnd(t *testing.T) {
	w := newWorld(t, 1500, 4)
	senders := NewSenders(SenderConfig{NetNS: w.outer.FD()})
	a := &End{RxConfig: RxConfig{NetNS: w.outer.FD(), Ifindex: w.a.OuterIndex}, Senders: senders}
	b := &End{RxConfig: RxConfig{NetNS: w.outer.FD(), Ifindex: w.b.OuterIndex}, Senders: senders}
	seen := map[*Sender]bool{}
	for id := range 2 {
		worker := port.Worker{ID: id, Arena: w.arena}
		for _, e := range []*End{a, b} {
			tx, err := e.OpenTx(worker)
			if err != nil {
				t.Fatal(err)
			}
			seen[tx.(*Tx).s] = true
			defer tx.Close()
		}
	}
	if len(seen) != 2 {
		t.Errorf("two workers have %d senders", len(seen))
	}
	rx, err := a.OpenRx(port.Worker{Arena: w.arena})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := b.OpenTx(port.Worker{ID: 1, Arena: w.arena})
	if err != nil {
		t.Fatal(err)
	}
	in, out := w.far(t, w.a), w.far(t, w.b)
	if err := in.Send(nil, frame(5, 60)); err != nil {
		t.Fatal(err)
	}
	batch := make([]port.Frame, port.MaxBatch)
	var sum port.Tally
	for end := time.Now().Add(10 * time.Second); sum.Frames == 0 && time.Now().Before(end); {
		n, err := rx.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		tx.Send(rx, batch[:n], &sum)
	}
	expect(t, out, []int{5})
	gone := &End{RxConfig: RxConfig{NetNS: w.outer.FD(), Ifindex: 9999}, Senders: senders}
	if rx, err := gone.OpenRx(port.Worker{}); err == nil || rx != nil {
		t.Errorf("open what isn't there: %v, %v", rx, err)
	}
	if tx, err := gone.OpenTx(port.Worker{}); err == nil || tx != nil {
		t.Errorf("open what isn't there: %v, %v", tx, err)
	}
	for range 2 {
		if err := rx.Close(); err != nil {
			t.Error(err)
		}
		if err := senders.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPromiscuous: the interface is promiscuous as long as the Rx is open.
func TestPromiscuous(t *testing.T) {
	w := newWorld(t, 1500, 4)
	promiscuous := func() bool {
		var count int // the flag shows only what an administrator set
		err := w.outer.Do(func() error {
			l, err := netlink.LinkByName(w.a.Outer)
			if err == nil {
				count = l.Attrs().Promisc
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return count > 0
	}
	rx, err := OpenRx(RxConfig{NetNS: w.outer.FD(), Ifindex: w.a.OuterIndex, Promiscuous: true}, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	if !promiscuous() {
		t.Error("the interface isn't promiscuous")
	}
	if err := rx.Close(); err != nil {
		t.Fatal(err)
	}
	// Closing a socket whose ring was mapped may end a little later than close(2).
	for end := time.Now().Add(10 * time.Second); promiscuous(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the interface stayed promiscuous")
		}
	}
}
