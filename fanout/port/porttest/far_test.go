package porttest

import (
	"fmt"
	"testing"
	"time"
)

// TestFar: the suite's own far side carries what it is given over a plain veth, so that
// what it says of a port is the port's doing.
func TestFar(t *testing.T) {
	outer, inner := NewNS(t), NewNS(t)
	v := NewVeth(t, outer, inner, "v", 1500, 1)
	far := func(ns *NS, name string) *PacketFar {
		f, err := DialFar(ns, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	a, b := far(inner, v.Inner), far(outer, v.Outer)
	pass := func(h *Hdr, f []byte, what string) {
		t.Helper()
		if err := a.Send(h, f); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, m, err := b.Recv(patience)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := differ(m, f); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if h != nil && (got.Flags() != h.Flags() || got.GSOType() != h.GSOType() || got.CsumStart() != h.CsumStart()) {
			t.Fatalf("%s: header % x came as % x", what, *h, got)
		}
	}
	for i, size := range sizes(300, 1514) {
		pass(nil, newFrame(uint32(i), size), fmt.Sprintf("%d bytes", size))
	}
	for _, tags := range stacks() {
		pass(nil, tag(newFrame(1, 60), tags...), fmt.Sprintf("tags %x", tags))
	}
	h, f := TCPFrame(IPv4, 20000, 1400, 0)
	pass(&h, f, "GSO")
	h, f = withTag(h, f, 0x8100_0064)
	pass(&h, f, "tagged GSO")
	if _, m, err := b.Recv(time.Millisecond); m != nil || err != nil {
		t.Errorf("one more frame came: % x, error %v", m, err)
	}
}

// TestSourceCountsReleases: a frame that is released never or twice is found.
func TestSourceCountsReleases(t *testing.T) {
	for _, c := range []struct {
		releases int
		ok       bool
	}{{0, false}, {1, true}, {2, false}} {
		s := NewSource(make([]byte, 60))
		for range c.releases {
			s.Release(0, s.Frames())
		}
		if err := s.Check(); (err == nil) != c.ok {
			t.Errorf("released %d times: %v", c.releases, err)
		}
	}
}
