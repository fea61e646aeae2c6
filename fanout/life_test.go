package fanout

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
)

// sane tells what is wrong with a ledger read at any moment, when at most offered frames went in.
func sane(led *Ledger, offered uint64) error {
	if n := led.Imbalance(); n != 0 {
		return fmt.Errorf("off by %d: %+v", n, *led)
	}
	for i := range led.Workers {
		if n := led.Workers[i].Imbalance(); n != 0 {
			return fmt.Errorf("worker %d is off by %d: %+v", i, n, *led)
		}
	}
	if led.Queued > offered {
		return fmt.Errorf("%d frames are queued: %+v", int64(led.Queued), *led)
	}
	return nil
}

// watch reads both ledgers of a pair, over and over, until stop is called.
func watch(t *testing.T, p *Pair, offered uint64) (stop func()) {
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		for n := 0; !end.Load() || n == 0; n++ {
			ab, ba := p.Ledgers()
			if err := errors.Join(sane(&ab, offered), sane(&ba, offered)); err != nil {
				done <- err
				return
			}
			if n%64 == 0 {
				pause()
			}
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

// Ledgers read while workers forward and drop are exact at every moment.
func TestLedgerIsExactUnderOverload(t *testing.T) {
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		const offered, room = 30_000, 64
		r := newRig(t, mode, workers, memport.Config{Out: room})
		stop := watch(t, r.pair, offered)
		ways := r.ways(60, 200)
		for range offered {
			for _, w := range ways {
				if !w.inject() {
					w.sent++
				}
			}
		}
		waitFor(t, "all that was offered is in the ledgers", func() bool {
			ab, ba := r.pair.Ledgers()
			return ab.Rx >= offered && ba.Rx >= offered
		})
		stop()
		for _, w := range ways {
			led := settle(t, w.lane)
			if led.Rx != offered || led.Tx != room || led.Drops[port.RxRingFull] != w.refused ||
				led.Drops.Total() != offered-room || led.Drops[port.TxBusy] == 0 {
				t.Errorf("rx %d, tx %d, drops %v; want %d, %d, %d refused", led.Rx, led.Tx, led.Drops, offered, room, w.refused)
			}
		}
	})
}

// traffic keeps a way busy until stop is called, which returns what was wrong.
func traffic(w *way) (stop func() error) {
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		for last := time.Now(); ; {
			for !end.Load() && w.sent-w.got < 100 && w.inject() {
			}
			some, err := w.capture()
			switch {
			case err != nil:
				done <- err
				return
			case some:
				last = time.Now()
			case end.Load() && w.got == w.sent:
				done <- nil
				return
			case time.Since(last) > 15*time.Second:
				done <- fmt.Errorf("%d of %d frames arrived", w.got, w.sent)
				return
			default:
				pause()
			}
		}
	}()
	return func() error { end.Store(true); return <-done }
}

// buffersInUse asks each worker of the pool for its arena.
func buffersInUse(t *testing.T, p *Pool) int {
	t.Helper()
	n := 0
	for _, w := range p.workers {
		if err := w.do(func() error { n += w.arena.InUse(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Pairs come and go, full of frames, while another one forwards: nothing of them stays.
func TestPairsComeAndGoUnderTraffic(t *testing.T) {
	r := newRig(t, Fanned, 4, memport.Config{})
	stops := []func() error{}
	ways := r.ways(60, 300)
	for _, w := range ways {
		stops = append(stops, traffic(w))
	}
	workers, fds := baseline(t, 4)
	cfg := memport.Config{Slots: 32, SlotLen: 128, MTU: 9000, Out: 16}
	buf := make([]byte, 2000)
	for i := range 200 {
		mode := []Mode{Inline, Fanned, Fanned, Inline, Polled}[i%5]
		a, b := memport.New(cfg), memport.New(cfg)
		p := r.add(t, fmt.Sprint(i), mode, a, b)
		if n := workerThreads(t); mode != Polled && i%20 == 0 && n > workers+1 { // a poller's thread may be ending
			t.Errorf("%d workers with one more pair, %d before", n, workers)
		}
		for k := range 24 {
			flowFrame(buf, uint16(k), uint32(i))
			a.Inject(0, nil, buf[:60+k%2*1000])
			b.Inject(0, nil, buf[:60+k%3*600])
		}
		if i%2 == 0 {
			waitFor(t, "a new pair forwards", func() bool { ab, ba := p.Ledgers(); return ab.Tx > 0 && ba.Tx > 0 })
		}
		if err := errors.Join(r.pool.Remove(p), r.pool.Remove(p)); err != nil {
			t.Fatal(err)
		}
		ab, ba := p.Ledgers()
		if err := errors.Join(sane(&ab, 0), sane(&ba, 0)); err != nil {
			t.Fatalf("pair %d (%s) after remove: %v", i, mode, err)
		}
	}
	for i, stop := range stops {
		if err := stop(); err != nil {
			t.Fatalf("way %d: %v", i, err)
		}
		ways[i].check(t)
	}
	if n := buffersInUse(t, r.pool); n != 0 {
		t.Errorf("%d buffers weren't given back", n)
	}
	waitFor(t, "threads and descriptors are as before", func() bool {
		return workerThreads(t) == workers && descriptors(t) == fds
	})
	if n := len(r.pool.Pairs()); n != 1 {
		t.Errorf("%d pairs, want 1", n)
	}
}

// A worker that is told to stop doesn't sleep again, however soundly it slept.
func TestIdlePoolsCloseAtOnce(t *testing.T) {
	before, fds := baseline(t, 0)
	const pools = 30
	start := time.Now()
	for i := range pools {
		p, err := NewPool(Config{CPUs: allowed(t)})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			waitFor(t, "all workers sleep", func() bool {
				for _, w := range p.Workers() {
					if w.Sleeps == 0 {
						return false
					}
				}
				return true
			})
		}
		var wg sync.WaitGroup
		for range 2 { // both return when it's closed
			wg.Go(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, err = p.Add(PairConfig{Name: "late", Mode: Inline, A: memport.New(memport.Config{}), B: memport.New(memport.Config{})})
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("add after close: %v, want ErrClosed", err)
		}
	}
	if d := time.Since(start); d > pools*lookEvery/2 {
		t.Errorf("%d pools took %v: workers sleep before they stop", pools, d)
	}
	waitFor(t, "the workers' threads and descriptors are gone", func() bool {
		return workerThreads(t) == before && descriptors(t) == fds
	})
}

// A pool that can't be had leaves nothing.
func TestNewPoolFails(t *testing.T) {
	before, fds := baseline(t, 0)
	for _, cfg := range []Config{
		{},
		{CPUs: append(allowed(t), 1<<9)}, // within a CPU set, above what the machine has
		{CPUs: allowed(t), Sched: Sched{Policy: "soon"}},
		{CPUs: allowed(t), Sched: Sched{Policy: "fifo", Priority: 100}},
		{CPUs: allowed(t), Name: "a\x00b"},
	} {
		if p, err := NewPool(cfg); err == nil {
			t.Errorf("%+v: made a pool", cfg)
			_ = p.Close()
		}
	}
	waitFor(t, "threads and descriptors are as before", func() bool {
		return workerThreads(t) == before && descriptors(t) == fds
	})
}

// halves counts what was opened and not closed again, and refuses when left is used up.
type halves struct {
	*memport.Device
	left, open *int
}

type countedRx struct {
	port.Rx
	open *int
}

type countedTx struct {
	port.Tx
	open *int
}

func (c countedRx) Close() error { *c.open--; return c.Rx.Close() }
func (c countedTx) Close() error { *c.open--; return c.Tx.Close() }

func (h halves) OpenRx(w port.Worker) (port.Rx, error) {
	if *h.left--; *h.left < 0 {
		return nil, errRefused
	}
	*h.open++
	rx, err := h.Device.OpenRx(w)
	return countedRx{rx, h.open}, err
}

func (h halves) OpenTx(w port.Worker) (port.Tx, error) {
	if *h.left--; *h.left < 0 {
		return nil, errRefused
	}
	*h.open++
	tx, err := h.Device.OpenTx(w)
	return countedTx{tx, h.open}, err
}

// Whichever half is refused, those opened before are closed, once each.
func TestRefusedHalvesLeaveNothing(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		opens int
	}{{Inline, 4}, {Fanned, 2 + 2*3}, {Polled, 4}} {
		t.Run(string(c.mode), func(t *testing.T) { refuse(t, c.mode, c.opens) })
	}
}

func refuse(t *testing.T, mode Mode, opens int) {
	r := newRig(t, Fanned, 3, memport.Config{})
	threads, fds := baseline(t, len(r.pool.workers))
	for n := 0; n <= opens; n++ {
		left, open := n, 0
		end := func() port.Opener { return halves{memport.New(memport.Config{}), &left, &open} }
		p, err := r.pool.Add(PairConfig{Name: "x", Mode: mode, A: end(), B: end(), Steering: r.pair.AB.steer})
		if n < opens {
			if !errors.Is(err, errRefused) {
				t.Fatalf("%s, half %d: %v, want it refused", mode, n, err)
			}
		} else if err != nil || open != opens {
			t.Fatalf("%s: %v, %d halves are open, want %d", mode, err, open, opens)
		} else if err := r.pool.Remove(p); err != nil {
			t.Fatal(err)
		}
		if open != 0 || len(r.pool.Pairs()) != 1 {
			t.Errorf("%s, half %d: %d stay open, %d pairs", mode, n, open, len(r.pool.Pairs()))
		}
		waitFor(t, "threads and descriptors are as before", func() bool {
			return workerThreads(t) == threads && descriptors(t) == fds
		})
	}
}

// What happens to one pair's devices is no matter of the others'.
func TestDeletionAndLinkFlapUnderTraffic(t *testing.T) {
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{}) // this one goes on
		ways := r.ways(60, 700)
		stops := []func() error{traffic(ways[0]), traffic(ways[1])}

		a, b := memport.New(memport.Config{}), memport.New(memport.Config{})
		p := r.add(t, "flap", mode, a, b)
		buf, out := make([]byte, 128), make([]byte, 4096)
		push := func() { // both ways, and makes room
			a.Inject(0, nil, flowFrame(buf, 1, 1))
			b.Inject(0, nil, flowFrame(buf, 2, 2))
			for a.Capture(out)+b.Capture(out) > 0 {
			}
		}
		moved := func(what string, f func(ab, ba Ledger) bool) {
			t.Helper()
			waitFor(t, what, func() bool { push(); return f(p.Ledgers()) })
		}
		for range 5 {
			b.SetLink(false)
			had, _ := p.Ledgers()
			moved("a link that is down drops", func(ab, _ Ledger) bool {
				return ab.Drops[port.TxLinkDown] > had.Drops[port.TxLinkDown]
			})
			b.SetLink(true)
			hadAB, hadBA := p.Ledgers()
			moved("a link that is up again works both ways", func(ab, ba Ledger) bool {
				return ab.Tx > hadAB.Tx && ba.Tx > hadBA.Tx
			})
		}
		if p.AB.Gone() || p.BA.Gone() {
			t.Error("a link that went down counts as deleted")
		}
		b.Delete()
		moved("a deleted device is noticed, and what is sent to it is dropped", func(ab, _ Ledger) bool {
			return p.BA.Gone() && ab.Drops[port.TxGone] > 0
		})
		if p.AB.Gone() || r.pair.AB.Gone() || r.pair.BA.Gone() {
			t.Error("devices that are there count as deleted")
		}
		if err := r.pool.Remove(p); err != nil {
			t.Error(err)
		}
		ab, ba := p.Ledgers()
		if err := errors.Join(sane(&ab, 0), sane(&ba, 0)); err != nil {
			t.Error(err)
		}
		for i, stop := range stops {
			if err := stop(); err != nil {
				t.Fatalf("the other pair, way %d: %v", i, err)
			}
			ways[i].check(t)
		}
	})
}

// Frames in buffers of the arena, both ways, cost no allocation either.
func TestBuffersAreNotAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{Slots: 64, SlotLen: 128, MTU: 9000, Out: 64})
		ways := r.ways(60, 1500)
		turn := func() {
			for _, w := range ways {
				for n := 0; n < 32; {
					if w.inject() {
						n++
					} else {
						pause()
					}
				}
				for w.got < w.sent {
					some, err := w.capture()
					if err != nil {
						t.Error(err)
						return
					}
					if !some {
						pause()
					}
				}
			}
		}
		for range 8 { // the devices' own slots grow once
			turn()
		}
		if n := testing.AllocsPerRun(20, turn); n != 0 {
			t.Errorf("%v allocations per 64 frames", n)
		}
	})
}
