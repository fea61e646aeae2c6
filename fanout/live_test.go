package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/rss"
)

// monotone watches that no counter of a pair ever goes back, until stop is called.
func monotone(t *testing.T, p *Pair) (stop func()) {
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		var last [2]Ledger
		for !end.Load() {
			ab, ba := p.Ledgers()
			for i, led := range []Ledger{ab, ba} {
				if led.Imbalance() != 0 || led.Queued > 1<<20 {
					done <- fmt.Errorf("way %d: off by %d, %d queued", i, led.Imbalance(), int64(led.Queued))
					return
				}
				for r := range led.Drops {
					if led.Drops[r] < last[i].Drops[r] {
						done <- fmt.Errorf("way %d: %v went from %d to %d", i, port.Reason(r), last[i].Drops[r], led.Drops[r])
						return
					}
				}
				if led.Rx < last[i].Rx || led.Tx < last[i].Tx || led.RxBytes < last[i].RxBytes || led.TxBytes < last[i].TxBytes {
					done <- fmt.Errorf("way %d: counters went back: %+v after %+v", i, led, last[i])
					return
				}
				last[i] = led
			}
			pause()
		}
		done <- nil
	}()
	return func() {
		end.Store(true)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Changes of every kind, one after the other, under load: nothing is lost, doubled or
// overtaken, and the ledgers go on.
func TestChangesUnderLoad(t *testing.T) {
	for _, workers := range []int{2, 4} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			n, r := changes(t, 150)
			rig := newRig(t, Fanned, workers, memport.Config{Slots: 512, SlotLen: 512, MTU: 9000})
			ways := rig.ways(60, 61, 1500, 200)
			watched := monotone(t, rig.pair)
			stops := []func() error{traffic(ways[0]), traffic(ways[1])}
			kinds := map[string]int{}
			var total Change
			for range n {
				had := rig.pair.AB.ledger().Tx
				kind, c := changeOnce(t, r, rig.pool, rig.pair)
				kinds[kind]++
				total.Moved, total.Held, total.Blocked = total.Moved+c.Moved, total.Held+c.Held, max(total.Blocked, c.Blocked)
				waitFor(t, "frames flow after a change", func() bool { return rig.pair.AB.ledger().Tx > had+50 })
			}
			for i, stop := range stops {
				if err := stop(); err != nil {
					t.Fatalf("way %d: %v", i, err)
				}
				ways[i].check(t)
			}
			watched()
			f := rig.pool.Fence()
			if f.Moved == 0 || f.Held == 0 || f.Failed != 0 || f.Moved != uint64(total.Moved) || f.Held != uint64(total.Held) {
				t.Errorf("fence %+v, the changes add up to %+v", f, total)
			}
			t.Logf("%v, %d frames; %+v", kinds, ways[0].got+ways[1].got, f)
		})
	}
}

// At overload a change happens too, no frame is overtaken or doubled, and what is lost is in the ledger.
func TestChangesAtOverload(t *testing.T) {
	more, r := changes(t, 60)
	rig := newRig(t, Fanned, 4, memport.Config{Slots: 256, Out: 512})
	watched := monotone(t, rig.pair)
	var end, done atomic.Bool
	offered := make(chan uint64, 1)
	go func() { // as fast as it goes
		var n uint64
		buf := make([]byte, 128)
		for ; !end.Load(); n++ {
			rig.a.Inject(0, nil, flowFrame(buf, uint16(n%testFlows), uint32(n/testFlows)+1))
			if n%4096 == 0 {
				pause()
			}
		}
		offered <- n
	}()
	got := make(chan error, 1)
	var captured uint64
	go func() {
		var last [testFlows]uint32
		buf := make([]byte, 4096)
		take := func() (bool, error) {
			n := rig.b.Capture(buf)
			if n == 0 {
				return false, nil
			}
			f := buf[port.VNetHdrLen:n]
			flow, seq := binary.BigEndian.Uint16(f[34:]), binary.BigEndian.Uint32(f[46:])
			if seq <= last[flow] {
				return true, fmt.Errorf("flow %d: frame %d after %d", flow, seq, last[flow])
			}
			last[flow] = seq
			captured++
			return true, nil
		}
		for !done.Load() || captured < rig.pair.AB.ledger().Tx {
			if some, err := take(); err != nil {
				got <- err
				return
			} else if !some {
				pause()
			}
		}
		got <- nil
	}()
	waitFor(t, "frames get lost", func() bool { d := rig.pair.AB.ledger().Drops; return d.Total() > 0 })
	for range more {
		changeOnce(t, r, rig.pool, rig.pair)
	}
	end.Store(true)
	n := <-offered
	waitFor(t, "all that was offered is in the ledger", func() bool { return rig.pair.AB.ledger().Rx >= n })
	settle(t, rig.pair.AB)
	done.Store(true)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	watched()
	led := settle(t, rig.pair.AB)
	if led.Rx != n || led.Tx != captured || led.Drops.Total() != n-captured {
		t.Errorf("offered %d, captured %d, ledger %+v", n, captured, led)
	}
	t.Logf("%d of %d frames lost; %+v", n-captured, n, rig.pool.Fence())
}

// A change that a stuck worker holds up is given up, and undone.
func TestStuckWorkerUndoesTheChange(t *testing.T) {
	rig := newRig(t, Fanned, 2, memport.Config{})
	rig.pool.giveUp = 100 * time.Millisecond
	stuck, release := make(chan struct{}), make(chan struct{})
	go func() { _ = rig.pool.workers[1].do(func() error { close(stuck); <-release; return nil }) }()
	<-stuck
	w := rig.ways(60)[0]
	for range 64 {
		w.inject()
	}
	waitFor(t, "frames wait for the stuck worker", func() bool { return rig.pair.AB.ledger().Queued > 0 })
	before := rig.pool.Steering()
	for name, change := range map[string]func() error{
		"table": func() error { return second(rig.pool.SetSteering(newSteering(t, rss.Config{}, "0", 128, 2))) },
		"hash": func() error {
			return second(rig.pool.SetSteering(newSteering(t, rss.Config{Func: "xxhash"}, "0", 128, 2)))
		},
		"mode": func() error { return second(rig.pool.SetMode(rig.pair, Inline)) },
	} {
		if err := change(); !errors.Is(err, ErrStuck) {
			t.Errorf("change %s: %v", name, err)
		}
	}
	if rig.pool.Steering() != before || rig.pair.CurrentMode() != Fanned {
		t.Error("a change that failed is in force")
	}
	close(release)
	stop := traffic(w)
	waitFor(t, "frames flow again", func() bool { return rig.pair.AB.ledger().Tx > 5000 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	w.check(t)
	if led := rig.pair.AB.ledger(); led.Workers[1].Tx < led.Tx/4 {
		t.Errorf("worker 1 sent %d of %d frames: the old table isn't in force", led.Workers[1].Tx, led.Tx)
	}
	if f := rig.pool.Fence(); f.Failed != 3 || f.Changes != 0 {
		t.Errorf("fence: %+v", f)
	}
}

// What can't be is refused, and nothing changes.
func TestRefusedChanges(t *testing.T) {
	rig := newRig(t, Inline, 2, memport.Config{})
	if _, err := rig.pool.SetMode(rig.pair, "both"); err == nil || rig.pair.CurrentMode() != Inline {
		t.Errorf("mode both: %v", err)
	}
	if _, err := rig.pool.SetSteering(newSteering(t, rss.Config{}, "equal", 0, 3)); err == nil {
		t.Error("took a table for 3 workers in a pool of 2")
	}
	for _, set := range [][]int{nil, {0}, {0, 1, 0}, {0, 1 << 9}} {
		if _, err := rig.pool.SetCPUs(set); err == nil {
			t.Errorf("took CPUs %v", set)
		}
	}
	if rig.pool.workers[0].cpu != allowed(t)[0] {
		t.Errorf("worker 0 is on cpu %d", rig.pool.workers[0].cpu)
	}
	bare := newPool(t, 2)
	other, err := bare.Add(PairConfig{Name: "bare", Mode: Inline, A: memport.New(memport.Config{}), B: memport.New(memport.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bare.SetMode(other, Fanned); err == nil || bare.Steering() != nil {
		t.Error("mode pool without a hash and a table")
	}
	if _, err := bare.SetSteering(newSteering(t, rss.Config{}, "equal", 0, 2)); err != nil {
		t.Error(err)
	}
	if _, err := bare.SetMode(other, Fanned); err != nil {
		t.Errorf("mode pool, with the pool's table: %v", err)
	}
	if err := bare.Remove(other); err != nil {
		t.Fatal(err)
	}
	if _, err := bare.SetMode(other, Polled); err == nil {
		t.Error("changed a pair that was removed")
	}
	if err := rig.pool.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		second(rig.pool.SetMode(rig.pair, Fanned)), second(rig.pool.SetCPUs([]int{0, 1})),
		second(rig.pool.SetSteering(newSteering(t, rss.Config{}, "equal", 0, 2))),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("change after close: %v", err)
		}
	}
}

func second(_ Change, err error) error { return err }

// A mode that a port can't be opened for is refused, and the pair goes on in the old one.
func TestSetModeFails(t *testing.T) {
	for _, from := range []Mode{Inline, Polled, Fanned} {
		for _, to := range []Mode{Fanned, Inline, Polled} {
			if from == to {
				continue
			}
			for more := range 4 {
				left := 100
				rig := newRig(t, Inline, 3, memport.Config{})
				a, b := memport.New(memport.Config{MTU: 9000}), memport.New(memport.Config{MTU: 9000})
				pair, err := rig.pool.Add(PairConfig{
					Name: "x", Mode: from, A: failing{a, &left}, B: failing{b, &left},
					Steering: newSteering(t, rss.Config{}, "equal", 0, 3),
				})
				if err != nil {
					t.Fatal(err)
				}
				left = more
				ways := []*way{newWay(a, b, pair.AB, 60, 3000), newWay(b, a, pair.BA, 60)}
				stops := []func() error{traffic(ways[0]), traffic(ways[1])}
				_, err = rig.pool.SetMode(pair, to)
				if want := left < 0; want != errors.Is(err, errRefused) || want != (pair.CurrentMode() == from) {
					t.Fatalf("%s to %s with %d halves: %v, mode %s", from, to, more, err, pair.CurrentMode())
				}
				for i, stop := range stops {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					ways[i].check(t)
				}
				if err := rig.pool.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
