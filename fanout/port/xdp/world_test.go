package xdp

import (
	"testing"

	"github.com/vishvananda/netlink"

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

// newFanWorld is a world of veths whose outer sides have one queue to receive from and several to send by.
func newFanWorld(t testing.TB, mtu, senders int) *world {
	t.Helper()
	w := &world{outer: porttest.NewNS(t)}
	for i, name := range []string{"a", "b"} {
		v := &porttest.Veth{OuterNS: w.outer, InnerNS: porttest.NewNS(t), Outer: name + "o", Inner: name + "i"}
		err := w.outer.Do(func() error {
			return netlink.LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: v.Outer, MTU: mtu, NumTxQueues: senders, NumRxQueues: 1, TxQLen: -1},
				PeerName:  v.Inner, PeerNamespace: netlink.NsFd(v.InnerNS.FD()), PeerMTU: uint32(mtu),
				PeerNumTxQueues: 1, PeerNumRxQueues: uint32(senders),
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct {
			ns    *porttest.NS
			name  string
			index *int
		}{{v.OuterNS, v.Outer, &v.OuterIndex}, {v.InnerNS, v.Inner, &v.InnerIndex}} {
			err := s.ns.Do(func() error {
				l, err := netlink.LinkByName(s.name)
				if err == nil {
					*s.index = l.Attrs().Index
					err = netlink.LinkSetUp(l)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		porttest.WaitRunning(t, v.OuterNS, v.Outer)
		porttest.WaitRunning(t, v.InnerNS, v.Inner)
		w.veth[i] = v
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
