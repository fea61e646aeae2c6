package packet

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// gsoUDP is VIRTIO_NET_HDR_GSO_UDP, which a virtual machine may send and a packet socket can't express.
const gsoUDP = 3

// TestStoppedRing: a frame that stops the kernel's ring costs the frames of a
// moment, and each of them is counted.
func TestStoppedRing(t *testing.T) {
	w := newWorld(t, 1500, 4)
	fd, ifindex := tapDevice(t, w.outer, unix.IFF_VNET_HDR, 100)
	rx, err := OpenRx(RxConfig{NetNS: w.outer.FD(), Ifindex: ifindex, Slots: 16}, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	sent, got := uint64(0), uint64(0)
	put := func(h porttest.Hdr, f []byte) {
		if _, err := unix.Write(fd, append(h[:], f...)); err != nil {
			t.Fatalf("write: %v", err)
		}
		sent++
	}
	batch := make([]port.Frame, port.MaxBatch)
	take := func() int {
		n, err := rx.Receive(batch)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		got += uint64(n)
		return n
	}
	poison, ufo := porttest.UDPFrame(porttest.IPv4, 1300, 400)
	poison[1] = gsoUDP
	for round := range 3 {
		for i := range 20 {
			put(porttest.Hdr{}, frame(i, 60))
			if take() != 1 {
				t.Fatalf("round %d: frame %d didn't come", round, i)
			}
			held := batch[0]
			if i == 19 { // a held slot must not be taken from under its holder
				put(poison, ufo)
				stay(t, rx, put, take)
			}
			rx.Release(1, []port.Frame{held})
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			put(porttest.Hdr{}, frame(1, 60))
			if n := take(); n > 0 {
				rx.Release(1, batch[:n])
				break
			}
			if time.Now().After(end) {
				t.Fatalf("round %d: the ring never worked again; drops %v", round, rx.Stats().Drops)
			}
		}
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		n := take()
		rx.Release(1, batch[:n])
		s := rx.Stats()
		if got+s.Drops.Total() == sent {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d sent, %d received, drops %v", sent, got, s.Drops)
		}
	}
}

// stay checks that the ring is left as it is while a slot is held.
func stay(t *testing.T, rx *Rx, put func(porttest.Hdr, []byte), take func() int) {
	t.Helper()
	before := rx.ring
	for range 8 {
		put(porttest.Hdr{}, frame(0, 60))
		take()
		time.Sleep(inspectEvery / 3)
	}
	if rx.ring != before {
		t.Fatal("the ring was replaced while a slot was held")
	}
}
