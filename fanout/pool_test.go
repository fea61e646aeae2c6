package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

//	Inject ── memport a ── lane a→b ── memport b ── Capture

// rig is one pair between two devices in memory.
type rig struct {
	pool *Pool
	pair *Pair
	a, b *memport.Device
}

func newPool(t *testing.T, workers int) *Pool {
	t.Helper()
	allowed, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	var set []int
	for i := range workers {
		set = append(set, allowed[i%len(allowed)])
	}
	p, err := NewPool(Config{CPUs: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done := make(chan error, 1)
		go func() { done <- p.Close() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("close: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("close hangs")
		}
	})
	return p
}

func newRig(t *testing.T, mode Mode, workers int, cfg memport.Config) *rig {
	t.Helper()
	r := &rig{pool: newPool(t, workers), a: memport.New(cfg), b: memport.New(cfg)}
	r.pair = r.add(t, "p", mode, r.a, r.b)
	return r
}

func (r *rig) add(t *testing.T, name string, mode Mode, a, b port.Opener) *Pair {
	t.Helper()
	h, err := rss.New(rss.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := rss.ParseTable("equal", 0, len(r.pool.workers))
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.pool.Add(PairConfig{Name: name, Mode: mode, A: a, B: b, Steering: NewSteering(h, table)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// flowFrame is a UDP frame of a flow, with a sequence number as payload.
func flowFrame(buf []byte, flow uint16, seq uint32) []byte {
	f := buf[:14+20+8+8]
	clear(f)
	f[12], f[13] = 0x08, 0x00
	f[14], f[17], f[23] = 0x45, 20+8+8, 17
	copy(f[26:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(f[34:], flow)
	binary.BigEndian.PutUint16(f[36:], 9)
	binary.BigEndian.PutUint32(f[46:], seq)
	return f
}

// pause leaves the CPU to the workers, which may be pinned to it.
func pause() { time.Sleep(10 * time.Microsecond) }

func eachCell(t *testing.T, f func(t *testing.T, mode Mode, workers int)) {
	for _, mode := range []Mode{Inline, Fanned, Polled} {
		for _, workers := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s-%d", mode, workers), func(t *testing.T) { f(t, mode, workers) })
		}
	}
}

// frames is how many frames an order test sends; EPAIR_FRAMES makes it long.
func frames(t *testing.T) int {
	if s := os.Getenv("EPAIR_FRAMES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 50_000
}

// Every frame of every flow arrives, in order, and the ledger says so. Workers may be
// more than cores.
func TestOrderAndLedger(t *testing.T) {
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		const flows = 256
		r := newRig(t, mode, workers, memport.Config{Slots: 512})
		total := frames(t)
		var next [flows]uint32
		buf, out := make([]byte, 128), make([]byte, 4096)
		sent, got := 0, 0
		stalled := time.Now().Add(30 * time.Second)
		for got < total {
			for sent < total && sent-got < 200 { // fewer than wait in any queue: nothing may be lost
				if !r.a.Inject(0, nil, flowFrame(buf, uint16(sent%flows), uint32(sent/flows))) {
					break
				}
				sent++
			}
			n := r.b.Capture(out)
			if n == 0 {
				pause()
				if time.Now().After(stalled) {
					t.Fatalf("%d of %d frames arrived", got, sent)
				}
				continue
			}
			f := out[port.VNetHdrLen:n]
			flow, seq := binary.BigEndian.Uint16(f[34:]), binary.BigEndian.Uint32(f[46:])
			if seq != next[flow] {
				t.Fatalf("flow %d: frame %d after %d", flow, seq, int(next[flow])-1)
			}
			next[flow]++
			got++
			if got%4096 == 0 {
				stalled = time.Now().Add(30 * time.Second)
			}
		}
		for end := time.Now().Add(10 * time.Second); r.pair.AB.ledger().Tx < uint64(total) && time.Now().Before(end); {
			pause() // a batch is captured before it is entered
		}
		ab := settle(t, r.pair.AB)
		// A frame that the ring refused was offered again: a worker that waits for its CPU holds its slots.
		refused := ab.Drops[port.RxRingFull]
		if ab.Rx-refused != uint64(total) || ab.Tx != uint64(total) || ab.Drops.Total() != refused {
			t.Errorf("ledger %+v, want %d in and out", ab, total)
		}
		if mode == Fanned && workers > 1 && ab.Workers[1].Tx == 0 {
			t.Error("the second worker sent nothing")
		}
	})
}

// settle waits until a lane has nothing queued, and checks its ledger all the while.
func settle(t *testing.T, l *Lane) Ledger {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		led := l.ledger()
		if n := led.Imbalance(); n != 0 {
			t.Fatalf("ledger is off by %d: %+v", n, led)
		}
		for i := range led.Workers {
			if n := led.Workers[i].Imbalance(); n != 0 {
				t.Fatalf("worker %d is off by %d: %+v", i, n, led)
			}
		}
		if led.Queued == 0 {
			return led
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames stay queued", led.Queued)
		}
	}
}

// No frame waits for the next one, however the burst's end meets a worker that goes to sleep.
func TestBursts(t *testing.T) {
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{Slots: 1024})
		buf, out := make([]byte, 128), make([]byte, 4096)
		for burst := range 400 {
			n := 1 + burst*31%200
			for i := range n {
				if !r.a.Inject(0, nil, flowFrame(buf, uint16(i), 0)) {
					t.Fatalf("burst %d: frame %d not taken", burst, i)
				}
			}
			for end := time.Now().Add(5 * time.Second); n > 0; {
				if r.b.Capture(out) > 0 {
					n--
				} else if pause(); time.Now().After(end) {
					t.Fatalf("burst %d: %d frames are stuck", burst, n)
				}
			}
		}
	})
}

// When nobody takes what is sent, every loss has a reason, and the ledger is exact at every moment.
func TestOverload(t *testing.T) {
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{Out: 64})
		buf := make([]byte, 128)
		const offered = 20_000
		for i := range offered {
			r.a.Inject(0, nil, flowFrame(buf, uint16(i), 0))
			if i%50 == 0 { // often: a frame must not be taken over before the ledger has it as handed
				if led := r.pair.AB.ledger(); led.Imbalance() != 0 || led.Queued > offered {
					t.Fatalf("ledger under load: %+v", led)
				}
			}
		}
		for end := time.Now().Add(10 * time.Second); r.pair.AB.ledger().Rx < offered && time.Now().Before(end); {
			pause() // the last of it waits in the port, where no ledger sees it
		}
		led := settle(t, r.pair.AB)
		if led.Rx != offered || led.Tx != 64 || led.Drops.Total() != offered-64 {
			t.Errorf("rx %d, tx %d, drops %v; want %d, 64 and the rest", led.Rx, led.Tx, led.Drops, offered)
		}
	})
}

func TestManyPairsFewThreads(t *testing.T) {
	r := newRig(t, Fanned, 2, memport.Config{Slots: 8, Out: 8})
	before := threads(t)
	var pairs []*Pair
	var ins, outs []*memport.Device
	for i := range 200 {
		a, b := memport.New(memport.Config{Slots: 8, Out: 8}), memport.New(memport.Config{Slots: 8, Out: 8})
		pairs = append(pairs, r.add(t, fmt.Sprint(i), []Mode{Inline, Fanned}[i%2], a, b))
		ins, outs = append(ins, a), append(outs, b)
	}
	if n := threads(t); n > before+10 { // the runtime's own come and go
		t.Errorf("%d threads for 200 pairs, %d for one", n, before)
	}
	buf, out := make([]byte, 128), make([]byte, 4096)
	for i := range ins {
		ins[i].Inject(0, nil, flowFrame(buf, uint16(i), 0))
	}
	for i := range outs {
		for end := time.Now().Add(5 * time.Second); outs[i].Capture(out) == 0; pause() {
			if time.Now().After(end) {
				t.Fatalf("pair %d is stuck", i)
			}
		}
	}
	for _, p := range pairs {
		if err := errors.Join(r.pool.Remove(p), r.pool.Remove(p)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.pool.Pairs()); n != 1 {
		t.Errorf("%d pairs left, want 1", n)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

// failing opens its first n halves and refuses the next.
type failing struct {
	*memport.Device
	left *int
}

var errRefused = errors.New("refused")

func (f failing) OpenRx(w port.Worker) (port.Rx, error) {
	if *f.left--; *f.left < 0 {
		return nil, errRefused
	}
	return f.Device.OpenRx(w)
}

func (f failing) OpenTx(w port.Worker) (port.Tx, error) {
	if *f.left--; *f.left < 0 {
		return nil, errRefused
	}
	return f.Device.OpenTx(w)
}

// Add is all or nothing, whichever half can't be opened.
func TestAddFails(t *testing.T) {
	for _, mode := range []Mode{Inline, Fanned, Polled} {
		r := newRig(t, mode, 2, memport.Config{})
		for n := 0; ; n++ {
			left := n
			cfg := PairConfig{Name: "x", Mode: mode, A: failing{memport.New(memport.Config{}), &left}, B: failing{memport.New(memport.Config{}), &left}}
			if mode == Fanned {
				cfg.Steering = r.pair.AB.steer
			}
			p, err := r.pool.Add(cfg)
			if err == nil {
				if err := r.pool.Remove(p); err != nil {
					t.Error(err)
				}
				if n < 4 {
					t.Errorf("%s: added with %d halves", mode, n)
				}
				break
			}
			if !errors.Is(err, errRefused) || len(r.pool.Pairs()) != 1 {
				t.Fatalf("%s, half %d: %v, %d pairs", mode, n, err, len(r.pool.Pairs()))
			}
		}
	}
}

func TestGoneAndClosed(t *testing.T) {
	r := newRig(t, Inline, 1, memport.Config{})
	r.a.Delete()
	for end := time.Now().Add(5 * time.Second); !r.pair.AB.Gone(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a deleted device isn't noticed")
		}
	}
	if err := errors.Join(r.pool.Close(), r.pool.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.pool.Add(PairConfig{Name: "late", Mode: Inline}); !errors.Is(err, ErrClosed) {
		t.Errorf("add after close: %v", err)
	}
}

// A worker's thread bears its name and runs on its CPU.
func TestThreads(t *testing.T) {
	p := newPool(t, 2)
	for i, w := range p.Workers() {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", w.TID))
		if err != nil {
			t.Fatal(err)
		}
		if w.TID == os.Getpid() {
			t.Error("a worker runs on the process's first thread, whose name is the process's")
		}
		if want := fmt.Sprintf("epair/w%d\n", i); string(comm) != want || w.Name+"\n" != want {
			t.Errorf("thread %d is %q, want %q", w.TID, comm, want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{})
		buf, out := make([]byte, 128), make([]byte, 4096)
		turn := func() {
			for i := range 32 {
				r.a.Inject(0, nil, flowFrame(buf, uint16(i), 0))
			}
			for n := 0; n < 32; {
				if r.b.Capture(out) > 0 {
					n++
				} else {
					pause()
				}
			}
		}
		turn()
		if n := testing.AllocsPerRun(20, turn); n != 0 {
			t.Errorf("%v allocations per 32 frames", n)
		}
	})
}
