package xdp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/ethtool"
)

// newDevWorld is a world of existing devices: the host sides of two containers, in two namespaces. Their
// other sides poll, as GRO is on.
func newDevWorld(t *testing.T) (w *world, c kern.Config) {
	w = newWorld(t, 1500, 2)
	w.veth[1] = porttest.NewVeth(t, porttest.NewNS(t), porttest.NewNS(t), "c", 1500, 2)
	if err := porttest.AddAddr(w.ns(1), "ci", "10.0.0.2/24"); err != nil {
		t.Fatal(err)
	}
	w.in(t, 1, func() error { return finishFrames("ci") })
	w.poll(t)
	c = w.config(kern.Inline)
	c.A, c.B = kern.End{Outer: c.A.Outer}, kern.End{Outer: c.B.Outer}
	return w, c
}

// poll makes the inner sides poll without a program.
func (w *world) poll(t testing.TB) {
	for i, v := range w.veth {
		w.in(t, i, func() error {
			_, err := ethtool.SetFeatures(v.Inner, map[string]bool{"rx-gro": true})
			return err
		})
	}
}

// Devices of two namespaces are joined, in every mode; the ledger is true, and says what it can't prove.
func TestDevices(t *testing.T) {
	w, c := newDevWorld(t)
	x := mustNew(t, c)
	for _, m := range modes {
		if _, err := x.SetMode(m); err != nil {
			t.Fatal(err)
		}
		w.ping(t, 0, 0, 100, 1472)
		w.ping(t, 1, 1, 1000)
	}
	if notes := strings.Join(x.Notes(), "\n"); !strings.Contains(notes, "bounded") {
		t.Errorf("notes: %s", notes)
	}
	if _, err := x.SetMode(kern.Pool); err != nil {
		t.Fatal(err)
	}
	before, _ := balance(t, x)
	r := w.rig(t, w.cpus, 0, 60)
	n := len(w.cpus)
	sent := r.run(t, time.Second, func(i int) {
		if err := w.policy.SetTable(mustTable(t, fmt.Sprint(i%n), n), w.cpus); err != nil {
			t.Error(err)
		}
	})
	ab, _ := balance(t, x)
	got, err := r.sink.Read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("offered %d, %+v, reordered %d", sent.Offered, ab, got.Reordered)
	if n := ab.Tx - before.Tx; n != got.Delivered+got.Stray {
		t.Errorf("%d frames at the far end, and %d of others; %d in the ledger", got.Delivered, got.Stray, n)
	}
}

func TestDevicePeers(t *testing.T) {
	w, c := newDevWorld(t)
	set := func(end int, feature string, on bool) {
		w.in(t, end, func() error {
			_, err := ethtool.SetFeatures(w.veth[end].Inner, map[string]bool{feature: on})
			return err
		})
	}
	set(1, "rx-gro", false)
	refused(t, c, "co takes no frames from XDP", "gro on")
	set(1, "rx-gro", true)
	set(0, "tx-checksum-ip-generic", true)
	// Nobody is in that namespace, and it has no name: only a note can be made.
	x := mustNew(t, c)
	if notes := strings.Join(x.Notes(), "\n"); !strings.Contains(notes, "ao's peer isn't found") {
		t.Errorf("notes: %s", notes)
	}
}
