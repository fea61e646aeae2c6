package xdp

import (
	"testing"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// world is two veths whose outer sides are in one namespace.
//
//	inner a ── ai ── ao ── outer ── bo ── bi ── inner b
type world struct {
	outer *porttest.NS
	veth  [2]*porttest.Veth
}

func newWorld(t testing.TB, mtu, queues int) *world {
	t.Helper()
	w := &world{outer: porttest.NewNS(t)}
	for i, name := range []string{"a", "b"} {
		w.veth[i] = porttest.NewVeth(t, w.outer, porttest.NewNS(t), name, mtu, queues)
	}
	return w
}

// config completes c with the devices.
func (w *world) config(c PairConfig) PairConfig {
	c.A = EndConfig{NetNS: w.veth[0].OuterNS.FD(), Ifindex: w.veth[0].OuterIndex}
	c.B = EndConfig{NetNS: w.veth[1].OuterNS.FD(), Ifindex: w.veth[1].OuterIndex}
	return c
}

// open opens a pair that must come without loss to its end.
func (w *world) open(t testing.TB, c PairConfig) *Pair {
	t.Helper()
	p, err := Open(w.config(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, e := range p.ends() {
		if e.Mode() != Native {
			t.Errorf("XDP program of %s is in mode %s", e.name, e.Mode())
		}
	}
	return p
}

// halves opens both halves of an end for worker 0.
func halves(t testing.TB, e *End) (port.Rx, port.Tx) {
	t.Helper()
	rx, err := e.OpenRx(port.Worker{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rx.Close() })
	tx, err := e.OpenTx(port.Worker{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Close() })
	return rx, tx
}
