package xdp

import (
	"errors"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// world is two veths whose outer sides are in one namespace; frames are finished when they come.
//
//	inner a ── ai ── ao ── outer ── bo ── bi ── inner b
//	10.0.0.1                                  10.0.0.2
type world struct {
	outer  *porttest.NS
	veth   [2]*porttest.Veth
	policy *kern.Policy
	cpus   []int
}

func newWorld(t testing.TB, mtu, queues int) *world {
	t.Helper()
	w := &world{outer: porttest.NewNS(t)}
	w.policy, w.cpus = newPolicy(t)
	for i, name := range []string{"a", "b"} {
		v := porttest.NewVeth(t, w.outer, porttest.NewNS(t), name, mtu, queues)
		if err := v.InnerNS.Do(func() error { return finishFrames(v.Inner) }); err != nil {
			t.Fatal(err)
		}
		w.veth[i] = v
		if err := porttest.AddAddr(v.InnerNS, v.Inner, []string{"10.0.0.1/24", "10.0.0.2/24"}[i]); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// newPolicy spreads 128 buckets evenly over the allowed CPUs.
func newPolicy(t testing.TB) (*kern.Policy, []int) {
	t.Helper()
	set, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	h, err := rss.New(rss.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := kern.NewPolicy(h, mustTable(t, "", len(set)), set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, set
}

func mustTable(t testing.TB, spec string, workers int) *rss.Table {
	t.Helper()
	table, err := rss.ParseTable(spec, 128, workers)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// config is the crossing's.
func (w *world) config(m kern.Mode) kern.Config {
	c := kern.Config{Name: "test", Mode: m, Policy: w.policy}
	for i, e := range []*kern.End{&c.A, &c.B} {
		v := w.veth[i]
		*e = kern.End{
			Inner: kern.Device{NetNS: v.InnerNS.FD(), Ifindex: v.InnerIndex, Name: v.Inner},
			Outer: kern.Device{NetNS: v.OuterNS.FD(), Ifindex: v.OuterIndex, Name: v.Outer},
			Owned: true,
		}
	}
	return c
}

func (w *world) cross(t testing.TB, m kern.Mode) *crossing {
	t.Helper()
	return mustNew(t, w.config(m))
}

func mustNew(t testing.TB, c kern.Config) *crossing {
	t.Helper()
	k, err := New(c)
	if ve := (*ebpf.VerifierError)(nil); errors.As(err, &ve) {
		t.Fatalf("%+v", ve)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(k.Close(), k.Close()); err != nil {
			t.Error(err)
		}
	})
	return k.(*crossing)
}

// ns is the inner namespace of end 0 or 1.
func (w *world) ns(i int) *porttest.NS { return w.veth[i].InnerNS }

// balance waits until nothing is on its way any more and returns the ledgers, which then must balance.
func balance(t testing.TB, x *crossing) (ab, ba kern.Ledger) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var err error
		if ab, ba, err = x.Ledgers(); err != nil {
			t.Fatal(err)
		}
		if ab.Queued == 0 && ba.Queued == 0 && ab.Imbalance() == 0 && ba.Imbalance() == 0 {
			return ab, ba
		}
		if time.Now().After(deadline) {
			t.Fatalf("ledgers don't balance:\na→b %+v\nb→a %+v", ab, ba)
		}
	}
}

// ping sends datagrams of given sizes from end to end and checks that they come, whole and in order.
func (w *world) ping(t testing.TB, from int, sizes ...int) {
	t.Helper()
	var rx, tx net.PacketConn
	addr := []string{"10.0.0.1", "10.0.0.2"}
	w.in(t, 1-from, func() (err error) { rx, err = net.ListenPacket("udp4", addr[1-from]+":0"); return err })
	defer rx.Close()
	w.in(t, from, func() (err error) { tx, err = net.ListenPacket("udp4", addr[from]+":0"); return err })
	defer tx.Close()
	buf := make([]byte, 1<<16)
	for n, size := range sizes {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(i*7 + n)
		}
		if _, err := tx.WriteTo(b, rx.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if err := rx.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got, _, err := rx.ReadFrom(buf)
		if err != nil {
			t.Fatalf("datagram %d of %d bytes: %v", n, size, err)
		}
		if string(buf[:got]) != string(b) {
			t.Fatalf("datagram %d of %d bytes differs", n, size)
		}
	}
}

func (w *world) in(t testing.TB, end int, fn func() error) {
	t.Helper()
	if err := w.ns(end).Do(fn); err != nil {
		t.Fatal(err)
	}
}

// total is the sum of the drops.
func total(drops map[string]uint64) (n uint64) {
	for v := range maps.Values(drops) {
		n += v
	}
	return n
}
