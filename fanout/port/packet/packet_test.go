package packet

import (
	"testing"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// world is two veth pairs whose outer sides are in one namespace, as a pair's are:
//
//	inner a ── outer a   [ port under test ]   outer b ── inner b
//	(own ns)   (outer namespace, one Sender)              (own ns)
type world struct {
	outer *porttest.NS
	a, b  *porttest.Veth
	arena *port.Arena
}

func newWorld(t testing.TB, mtu, buffers int) *world {
	t.Helper()
	w := &world{outer: porttest.NewNS(t)}
	w.a = porttest.NewVeth(t, w.outer, porttest.NewNS(t), "a", mtu, 1)
	w.b = porttest.NewVeth(t, w.outer, porttest.NewNS(t), "b", mtu, 1)
	var err error
	if w.arena, err = port.NewArena(buffers); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.arena.Close() })
	return w
}

func (w *world) worker() port.Worker { return port.Worker{Arena: w.arena} }

func (w *world) sender(t testing.TB) *Sender {
	t.Helper()
	return w.senderOf(t, SenderConfig{})
}

func (w *world) senderOf(t testing.TB, c SenderConfig) *Sender {
	t.Helper()
	c.NetNS = w.outer.FD()
	s, err := OpenSender(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (w *world) rx(t testing.TB, v *porttest.Veth, slots int) *Rx {
	t.Helper()
	r, err := OpenRx(RxConfig{NetNS: w.outer.FD(), Ifindex: v.OuterIndex, Slots: slots}, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func (w *world) tx(t testing.TB, s *Sender, v *porttest.Veth) *Tx {
	t.Helper()
	x, err := s.Tx(v.OuterIndex, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (w *world) far(t testing.TB, v *porttest.Veth) *porttest.PacketFar {
	t.Helper()
	f, err := porttest.DialFar(v.InnerNS, v.Inner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func (w *world) end(t testing.TB, s *Sender, v *porttest.Veth, slots int) porttest.End {
	t.Helper()
	return porttest.End{
		Rx: w.rx(t, v, slots), Tx: w.tx(t, s, v), Far: w.far(t, v),
		SetLink:  func(up bool) error { return porttest.SetLink(w.outer, v.Outer, up) },
		Delete:   func() error { return porttest.DeleteLink(w.outer, v.Outer) },
		DeleteNS: v.InnerNS.Close,
	}
}

func TestPort(t *testing.T) {
	for _, c := range []struct {
		name       string
		mtu, slots int
		sender     SenderConfig
	}{
		{"mtu 1500", 1500, 128, SenderConfig{}},
		{"mtu 9000", 9000, 128, SenderConfig{}},
		{"mtu 9000 in slots", 9000, 128, SenderConfig{Slots: 32, SlotLen: 16384}},
	} {
		t.Run(c.name, func(t *testing.T) {
			open := func(t *testing.T) *porttest.Rig {
				w := newWorld(t, c.mtu, 16)
				s := w.senderOf(t, c.sender)
				return &porttest.Rig{A: w.end(t, s, w.a, c.slots), B: w.end(t, s, w.b, c.slots), Arena: w.arena}
			}
			porttest.Run(t, porttest.Caps{MaxFrame: c.mtu + minFrame, Ring: c.slots, GSO: true, Arena: true}, open)
		})
	}
}
