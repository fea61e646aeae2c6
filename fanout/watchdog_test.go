package fanout

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/rss"
)

// faulty opens ports of a device that stall while their switch is on, and whose receivers' descriptors tell nothing.
type faulty struct {
	*memport.Device
	hang, hold *atomic.Bool
}

// mutedRx has a descriptor that tells nothing, and doesn't return from Receive while hang is set.
type mutedRx struct {
	port.Rx
	fd   int
	hang *atomic.Bool
}

func (r *mutedRx) FD() int      { return r.fd }
func (r *mutedRx) Close() error { _ = unix.Close(r.fd); return r.Rx.Close() }

func (r *mutedRx) Receive(b []port.Frame) (int, error) {
	for r.hang.Load() {
		pause()
	}
	return r.Rx.Receive(b)
}

// heldTx keeps frames while hold is set, until it's called again.
type heldTx struct {
	port.Tx
	hold *atomic.Bool
	n    atomic.Int64
}

func (x *heldTx) Queued() int { return int(x.n.Load()) }

func (x *heldTx) Send(src port.Source, b []port.Frame, t *port.Tally) {
	var one port.Tally
	x.Tx.Send(src, b, &one)
	if x.hold.Load() { // says that they haven't left
		x.n.Add(int64(one.Frames))
		one.Frames = 0
	} else {
		one.Frames += uint64(x.n.Swap(0))
	}
	t.Frames, t.Bytes = t.Frames+one.Frames, t.Bytes+one.Bytes
	t.Drops.Add(&one.Drops)
}

func (f *faulty) OpenRx(w port.Worker) (port.Rx, error) {
	rx, err := f.Device.OpenRx(w)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) // nobody ever writes to it
	return &mutedRx{Rx: rx, fd: fd, hang: f.hang}, err
}

func (f *faulty) OpenTx(w port.Worker) (port.Tx, error) {
	tx, err := f.Device.OpenTx(w)
	return &heldTx{Tx: tx, hold: f.hold}, err
}

func newFaulty() *faulty {
	return &faulty{memport.New(memport.Config{}), &atomic.Bool{}, &atomic.Bool{}}
}

// named waits until the watchdog names a fault, and returns it.
func named(t *testing.T, p *Pool, what ...string) Fault {
	t.Helper()
	var found Fault
	start := time.Now()
	waitFor(t, "the watchdog names "+strings.Join(what, " "), func() bool {
		now, past, _ := p.Faults()
		for _, f := range append(past, now...) {
			ok := true
			for _, w := range what {
				ok = ok && strings.Contains(f.What, w)
			}
			if ok {
				found = f
				return true
			}
		}
		return false
	})
	t.Logf("after %v: %+v", time.Since(start).Round(time.Millisecond), found)
	return found
}

// over waits until nothing is stuck any more.
func over(t *testing.T, p *Pool) {
	t.Helper()
	waitFor(t, "no fault is left", func() bool {
		now, past, total := p.Faults()
		return len(now) == 0 && len(past) > 0 && total > 0 && !past[len(past)-1].Until.IsZero()
	})
}

// A port whose descriptor is silent is asked all the same, and named.
func TestWatchdogNamesSilentPort(t *testing.T) {
	t.Parallel() // after all that count threads
	pool, a, b := newPool(t, 2), newFaulty(), memport.New(memport.Config{})
	pair, err := pool.Add(PairConfig{Name: "quiet", Mode: Inline, A: a, B: b})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the worker has looked at the new port", func() bool { return pool.Workers()[0].Sleeps > 0 })
	buf := make([]byte, 128)
	a.Inject(0, nil, flowFrame(buf, 1, 1))
	waitFor(t, "the frame is found", func() bool { return pair.AB.ledger().Tx == 1 })
	if f := named(t, pool, "port a of pair quiet", "descriptor"); f.Kicks == 0 {
		t.Errorf("%+v", f)
	}
	over(t, pool)
}

// A worker that a port doesn't let go is named with the port, a ring that it doesn't empty, too.
func TestWatchdogNamesStuckPortAndRing(t *testing.T) {
	t.Parallel() // after all that count threads
	pool, b, end := newPool(t, 2), newFaulty(), memport.New(memport.Config{})
	_, err := pool.Add(PairConfig{
		Name: "stuck", Mode: Fanned, A: end, B: b, Steering: newSteering(t, rss.Config{}, "1", 128, 2),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.hang.Store(true) // b's reader is worker 1, which also sends all that a receives
	waitFor(t, "worker 1 hangs", func() bool { return pool.workers[1].at.Load() != nowhere && !pool.workers[1].asleep.Load() })
	buf := make([]byte, 128)
	end.Inject(0, nil, flowFrame(buf, 1, 1))
	if f := named(t, pool, "worker epair/w1", "receiving from port b of pair stuck"); !f.Until.IsZero() || f.Kicks == 0 {
		t.Errorf("%+v", f)
	}
	named(t, pool, "ring w0→w1", "holds 1 frames")
	b.hang.Store(false)
	over(t, pool)
}

// Frames that don't leave are named with their port.
func TestWatchdogNamesHeldFrames(t *testing.T) {
	t.Parallel() // after all that count threads
	pool, b, a := newPool(t, 1), newFaulty(), memport.New(memport.Config{})
	pair, err := pool.Add(PairConfig{Name: "full", Mode: Inline, A: a, B: b})
	if err != nil {
		t.Fatal(err)
	}
	b.hold.Store(true)
	buf := make([]byte, 128)
	for i := range 3 {
		a.Inject(0, nil, flowFrame(buf, 1, uint32(i)))
	}
	waitFor(t, "three frames are queued", func() bool { return pair.AB.ledger().Queued == 3 })
	named(t, pool, "port b of pair full", "holds 3 frames of epair/w0")
	b.hold.Store(false)
	a.Inject(0, nil, flowFrame(buf, 1, 4))
	waitFor(t, "all left", func() bool { led := pair.AB.ledger(); return led.Tx == 4 && led.Queued == 0 })
	over(t, pool)
}

// A kick makes a sleeper ask ports that told nothing.
func TestKickAsksSilentPorts(t *testing.T) {
	t.Parallel() // after all that count threads
	pool, a, b := newPool(t, 1), newFaulty(), memport.New(memport.Config{})
	pair, err := pool.Add(PairConfig{Name: "quiet", Mode: Inline, A: a, B: b})
	if err != nil {
		t.Fatal(err)
	}
	w := pool.workers[0]
	if err := w.do(func() error { w.looked = time.Now().Add(time.Hour); return nil }); err != nil { // it asks by itself no more
		t.Fatal(err)
	}
	waitFor(t, "the worker sleeps", w.asleep.Load)
	buf := make([]byte, 128)
	for n := uint64(1); n < 20; n++ {
		a.Inject(0, nil, flowFrame(buf, 1, 1))
		waitFor(t, "the worker sleeps", w.asleep.Load)
		w.kick()
		waitFor(t, "the frame is found", func() bool { return pair.AB.ledger().Tx == n })
	}
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
	w.kick() // a worker that has ended, whose descriptors are closed
}

// In normal operation, also while all changes, nothing is found.
func TestWatchdogIsQuiet(t *testing.T) {
	t.Parallel() // after all that count threads
	rig := newRig(t, Fanned, 2, memport.Config{})
	ways := rig.ways(60)
	stops := []func() error{traffic(ways[0]), traffic(ways[1])}
	for start := time.Now(); time.Since(start) < 5*watchEvery; {
		if _, err := rig.pool.SetMode(rig.pair, []Mode{Inline, Fanned, Polled}[time.Now().UnixNano()%3]); err != nil {
			t.Fatal(err)
		}
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if now, past, total := rig.pool.Faults(); total > 0 {
		t.Errorf("%d faults: %+v %+v", total, now, past)
	}
}
