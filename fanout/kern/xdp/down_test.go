package xdp

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// A far end that is down, and one that is gone, take no frames; each frame to it is in the ledger, modes still
// change, and it works again when it's back.
func TestEndDownAndGone(t *testing.T) {
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Inline)
	fd := w.raw(t, 0)
	frame := make([]byte, 60)
	copy(frame, "\x02\x02\x02\x02\x02\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
	send := func(n int) {
		for range n {
			if _, err := unix.Write(fd, frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(what string, down uint64) {
		t.Helper()
		ab, _ := balance(t, x)
		if ab.Drops["peer_down"] != down {
			t.Errorf("%s: %+v, want %d to a peer that is down", what, ab, down)
		}
	}
	send(10)
	expect("up", 0)
	for i, s := range []struct {
		ns   *porttest.NS
		name string
	}{{w.ns(1), "bi"}, {w.outer, "bo"}} {
		if err := porttest.SetLink(s.ns, s.name, false); err != nil {
			t.Fatal(err)
		}
		send(10)
		expect(s.name+" down", uint64(20*i+10))
		for _, m := range []kern.Mode{kern.Pool, kern.Poller, kern.Inline} {
			// A device that is down has no NAPI.
			if _, err := x.SetMode(m); err != nil && !(m == kern.Poller && s.name == "bo" && errors.Is(err, kern.ErrRefused)) {
				t.Errorf("%s down, to %s: %v", s.name, m, err)
			}
		}
		if _, err := x.SetMode(kern.Pool); err != nil {
			t.Fatal(err)
		}
		send(10)
		expect(s.name+" down, pool", uint64(20*i+20))
		if err := porttest.SetLink(s.ns, s.name, true); err != nil {
			t.Fatal(err)
		}
		porttest.WaitRunning(t, w.ns(1), "bi")
		porttest.WaitRunning(t, w.outer, "bo")
		if _, err := x.SetMode(kern.Inline); err != nil {
			t.Fatal(err)
		}
	}
	w.ping(t, 0, 100)
	if err := porttest.DeleteLink(w.outer, "bo"); err != nil {
		t.Fatal(err)
	}
	send(10)
	expect("gone", 50)
}
