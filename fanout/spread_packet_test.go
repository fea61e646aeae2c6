package fanout

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/bpf"
	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/packet"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/rss"
)

// newSpreadWire is a wire whose frames the kernel spreads, and its outer veth ends.
func newSpreadWire(t *testing.T, workers int) (*wire, [2]*porttest.Veth) {
	t.Helper()
	home := newSteering(t, rss.Config{}, "equal", 0, workers)
	r, err := bpf.NewRSS(home.hasher, home.table)
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	prog, err := r.NewPacketSteering(home.table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })

	outer := porttest.NewNS(t)
	senders := packet.NewSenders(packet.SenderConfig{NetNS: outer.FD()})
	t.Cleanup(func() { _ = senders.Close() })
	w := &wire{}
	var veths [2]*porttest.Veth
	var ends [2]port.Opener
	for i, name := range []string{"a", "b"} {
		v := porttest.NewVeth(t, outer, porttest.NewNS(t), name, 9000, 1)
		ends[i] = &packet.End{
			RxConfig: packet.RxConfig{NetNS: outer.FD(), Ifindex: v.OuterIndex}, Senders: senders, Attach: prog.AttachPacket,
		}
		if w.fars[i], err = porttest.DialFar(v.InnerNS, v.Inner); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.fars[i].Close() })
		veths[i] = v
	}
	w.pool = newPool(t, workers)
	w.pair, err = w.pool.Add(PairConfig{Name: "p", Mode: Fanned, A: ends[0], B: ends[1], Steering: home, Spread: home})
	if err != nil {
		t.Fatal(err)
	}
	return w, veths
}

// Links that flap and everything that changes, at overload: the frames that arrive are in order, and the
// ledgers name those that a worker dropped.
func TestSpreadFlapsAtOverload(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	w, veths := newSpreadWire(t, 3)
	watched := monotone(t, w.pair)
	streams, failed, stop := w.run(t, true)
	for i := range 40 {
		v := veths[i%2]
		for _, up := range []bool{false, true} {
			if err := porttest.SetLink(v.OuterNS, v.Outer, up); err != nil {
				t.Fatal(err)
			}
		}
		if i%4 == 3 {
			changeOnce(t, r, w.pool, w.pair)
		}
		had := [2]uint64{streams[0].got.Load(), streams[1].got.Load()}
		waitFor(t, "frames arrive after a flap", func() bool {
			return streams[0].got.Load() > had[0]+50 && streams[1].got.Load() > had[1]+50 || failed.Load()
		})
	}
	if w.pair.CurrentMode() != Fanned {
		if _, err := w.pool.SetMode(w.pair, Fanned); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := w.pair.Ledgers()
	waitFor(t, "every worker receives", func() bool {
		now, _ := w.pair.Ledgers()
		for i := range 3 {
			if now.Workers[i].Rx <= before.Workers[i].Rx {
				return failed.Load()
			}
		}
		return true
	})
	stop()
	watched()
	ab, ba := w.pair.Ledgers()
	for i, led := range []Ledger{ab, ba} {
		for x, l := range led.Workers {
			if l.Imbalance() != 0 {
				t.Errorf("way %d, worker %d: %+v", i, x, l)
			}
		}
		if led.Tx < streams[i].got.Load() || led.Drops[port.RxMisplaced] > led.Rx/100 {
			t.Errorf("way %d: %d arrived, ledger %+v", i, streams[i].got.Load(), led)
		}
		t.Logf("way %d: %d of %d arrived, drops %v", i, streams[i].got.Load(), streams[i].sent.Load(), led.Drops)
	}
}
