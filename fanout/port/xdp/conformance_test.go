package xdp

import (
	"testing"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name        string
		mtu, queues int
	}{
		{"mtu 1500", 1500, 1},
		{"mtu 3506", 3506, 1},
		{"three queues", 1500, 3},
	} {
		caps := porttest.Caps{MaxFrame: c.mtu + ethHdrLen, Ring: 128}
		t.Run(c.name, func(t *testing.T) {
			porttest.Run(t, caps, func(t *testing.T) *porttest.Rig { return newRig(t, c.mtu, c.queues) })
		})
	}
}

// newRig is a pair between two veths:
//
//	namespace    outer (nothing else in it)       namespace
//	A.Far ── ai ── ao ── A ═══ UMEM ═══ B ── bo ── bi ── B.Far
func newRig(t *testing.T, mtu, queues int) *porttest.Rig {
	t.Helper()
	arena, err := port.NewArena(port.MaxBatch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	w := newWorld(t, mtu, queues)
	p := w.open(t, PairConfig{})
	r := &porttest.Rig{Arena: arena}
	for i, e := range []*porttest.End{&r.A, &r.B} {
		v := w.veth[i]
		e.Rx, e.Tx = halves(t, []*End{p.A, p.B}[i])
		far, err := porttest.DialFar(v.InnerNS, v.Inner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { far.Close() })
		e.Far = far
		e.SetLink = func(up bool) error { return porttest.SetLink(v.OuterNS, v.Outer, up) }
		e.Delete = func() error { return porttest.DeleteLink(v.OuterNS, v.Outer) }
		e.DeleteNS = v.InnerNS.Close
	}
	return r
}
