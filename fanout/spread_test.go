package fanout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/rss"
)

// spreader is a device in memory whose frames come to a half of their own: Inject says which.
type spreader struct {
	*memport.Device
	kind   port.Spreading
	halves int // as last asked for
}

func (s *spreader) Spread(n int) port.Spreading { s.halves = n; return s.kind }

// newSpreadRig is a pair in mode pool whose ends are spread, and the two ways through it. Every frame
// comes to the half of its bucket.
func newSpreadRig(t *testing.T, kind port.Spreading, workers int) (*rig, []*way) {
	t.Helper()
	cfg := memport.Config{Slots: 512, SlotLen: 512, MTU: 9000}
	r := &rig{pool: newPool(t, workers), a: memport.New(cfg), b: memport.New(cfg)}
	home := newSteering(t, rss.Config{}, "equal", 0, workers)
	var err error
	r.pair, err = r.pool.Add(PairConfig{
		Name: "p", Mode: Fanned, A: &spreader{Device: r.a, kind: kind}, B: &spreader{Device: r.b, kind: kind},
		Steering: home, Spread: home,
	})
	if err != nil {
		t.Fatal(err)
	}
	ways := r.ways(60, 61, 1500, 200)
	for _, w := range ways {
		w.queue = func(f []byte) int { return home.table.Worker(home.table.Bucket(home.hasher.Hash(f))) }
	}
	return r, ways
}

// checkSpread compares the ledgers, at rest, with what went through.
func checkSpread(t *testing.T, r *rig, ways []*way) [2]Ledger {
	t.Helper()
	var all [2]Ledger
	waitFor(t, "the ledgers have every frame", func() bool {
		all[0], all[1] = r.pair.Ledgers()
		return !slices.ContainsFunc(ways, func(w *way) bool {
			led := &all[slices.Index(ways, w)]
			return led.Rx-w.refused < uint64(w.sent) || led.Tx < uint64(w.got) || led.Queued > 0
		})
	})
	for i, w := range ways {
		led := &all[i]
		if led.Imbalance() != 0 || led.Rx-w.refused != uint64(w.sent) || led.Tx != uint64(w.got) || w.got != w.sent ||
			led.Drops[port.RxRingFull] != w.refused || led.Drops.Total() != w.refused {
			t.Errorf("way %d: ledger %+v, want %d in, %d out, %d refused", i, led, w.sent, w.got, w.refused)
		}
	}
	return all
}

// Spread frames keep the order of their flows, and none is handed over.
func TestSpread(t *testing.T) {
	for _, kind := range []port.Spreading{port.Strict, port.Loose} {
		for _, workers := range []int{2, 3, 4} {
			t.Run(fmt.Sprint(kind, workers), func(t *testing.T) {
				r, ways := newSpreadRig(t, kind, workers)
				watched := monotone(t, r.pair)
				stops := []func() error{traffic(ways[0]), traffic(ways[1])}
				waitFor(t, "frames flow", func() bool { ab, ba := r.pair.Ledgers(); return ab.Tx > 20_000 && ba.Tx > 20_000 })
				for i, stop := range stops {
					if err := stop(); err != nil {
						t.Fatalf("way %d: %v", i, err)
					}
				}
				watched()
				for i, led := range checkSpread(t, r, ways) {
					for x, w := range led.Workers[:workers] {
						if w.Rx == 0 || w.Tx != w.Rx || w.Handed != 0 || w.Taken != 0 || w.Imbalance() != 0 {
							t.Errorf("way %d, worker %d: %+v", i, x, w)
						}
					}
				}
				if !r.pair.AB.Spread() || !r.pair.BA.Spread() || r.pair.AB.Reader() != 0 {
					t.Errorf("read by worker %d", r.pair.AB.Reader())
				}
			})
		}
	}
}

// Whatever changes under load, each frame comes through once and in its place.
func TestSpreadChangesUnderLoad(t *testing.T) {
	for _, kind := range []port.Spreading{port.Strict, port.Loose} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(kind), 5))
			r, ways := newSpreadRig(t, kind, 3)
			watched := monotone(t, r.pair)
			stops := []func() error{traffic(ways[0]), traffic(ways[1])}
			for range 100 {
				had, _ := r.pair.Ledgers()
				changeOnce(t, rnd, r.pool, r.pair)
				waitFor(t, "frames flow after a change", func() bool { ab, _ := r.pair.Ledgers(); return ab.Tx > had.Tx+50 })
			}
			if _, err := r.pool.SetMode(r.pair, Inline); err != nil {
				t.Fatal(err)
			}
			before, _ := r.pair.Ledgers()
			if _, err := r.pool.SetMode(r.pair, Fanned); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "every worker receives", func() bool {
				ab, _ := r.pair.Ledgers()
				for x := range 3 {
					if ab.Workers[x].Rx <= before.Workers[x].Rx {
						return false
					}
				}
				return true
			})
			for i, stop := range stops {
				if err := stop(); err != nil {
					t.Fatalf("way %d: %v", i, err)
				}
			}
			watched()
			checkSpread(t, r, ways)
		})
	}
}

// A frame at another half than its own is dropped where the kernel places all of them, in every mode
// and with every hash, and handed over where senders may choose.
func TestMisplaced(t *testing.T) {
	for _, kind := range []port.Spreading{port.Strict, port.Loose} {
		r, ways := newSpreadRig(t, kind, 3)
		w := ways[0]
		home := w.queue
		sent, lost, buf := uint64(0), uint64(0), make([]byte, 16384)
		for _, change := range []func() error{
			func() error { return nil },
			func() error {
				return second(r.pool.SetSteering(newSteering(t, rss.Config{Func: "xxhash"}, "equal", 0, 3)))
			},
			func() error { return second(r.pool.SetMode(r.pair, Inline)) },
			func() error { return second(r.pool.SetMode(r.pair, Polled)) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			for i := range 90 {
				f := flowFrame(buf, uint16(i), 0)
				at := (home(f) + i%3) % 3
				if !r.a.Inject(at, nil, f) {
					t.Fatal("refused")
				}
				if sent++; kind == port.Strict && i%3 != 0 {
					lost++
				}
			}
			var led Ledger
			waitFor(t, "all frames are accounted for", func() bool {
				led, _ = r.pair.Ledgers()
				return led.Rx == sent && led.Queued == 0
			})
			if led.Drops[port.RxMisplaced] != lost || led.Drops.Total() != lost || led.Tx != sent-lost {
				t.Errorf("kind %v: %d sent, %d misplaced: %+v", kind, sent, lost, led)
			}
		}
	}
}

// Ends are spread only if they can be, and only in mode pool over several workers.
func TestNotSpread(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    port.Spreading
		mode    Mode
		workers int
		program bool
		asked   int
	}{
		{"single", port.Single, Fanned, 2, true, 2},
		{"one worker", port.Strict, Fanned, 1, true, 0},
		{"inline", port.Strict, Inline, 2, true, 0},
		{"poller", port.Strict, Polled, 2, true, 0},
		{"no program", port.Strict, Fanned, 2, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rig{pool: newPool(t, c.workers)}
			a := &spreader{Device: memport.New(memport.Config{}), kind: c.kind}
			s := newSteering(t, rss.Config{}, "equal", 0, c.workers)
			cfg := PairConfig{Name: "p", Mode: c.mode, A: a, B: memport.New(memport.Config{}), Steering: s}
			if c.program {
				cfg.Spread = s
			}
			p, err := r.pool.Add(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if p.AB.Spread() || p.BA.Spread() || len(p.lanes()) != 2 || a.halves != c.asked {
				t.Errorf("spread: %v %v, %d lanes, asked for %d halves", p.AB.Spread(), p.BA.Spread(), len(p.lanes()), a.halves)
			}
		})
	}
}
