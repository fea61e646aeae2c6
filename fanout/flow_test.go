package fanout

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/internal/cpus"
)

const testFlows = 256

// way is one direction of a rig, seen from outside: numbered frames of testFlows flows go in,
// and what comes out is checked.
type way struct {
	in, out  *memport.Device
	lane     *Lane
	queue    func(frame []byte) int // where it comes in; nil: at the first
	sent     int
	got      int
	refused  uint64 // by a full receive queue; each was offered again
	sizes    []int  // frame lengths, taken in turn
	want     [testFlows]uint32
	buf, cap []byte
}

func newWay(in, out *memport.Device, l *Lane, sizes ...int) *way {
	return &way{
		in: in, out: out, lane: l, sizes: sizes,
		buf: make([]byte, 16384), cap: make([]byte, 16384),
	}
}

func (r *rig) ways(sizes ...int) []*way {
	return []*way{newWay(r.a, r.b, r.pair.AB, sizes...), newWay(r.b, r.a, r.pair.BA, sizes...)}
}

// fill writes the bytes that frame number seq of a flow has behind its headers.
func fill(b []byte, flow uint16, seq uint32) {
	for i := range b {
		b[i] = byte(uint32(flow)*7 + seq*31 + uint32(i))
	}
}

// inject offers the next frame once.
func (w *way) inject() bool {
	flow, seq := uint16(w.sent%testFlows), uint32(w.sent/testFlows)
	size := w.sizes[w.sent%len(w.sizes)]
	head := flowFrame(w.buf, flow, seq)
	fill(w.buf[len(head):size], flow, seq)
	queue := 0
	if w.queue != nil {
		queue = w.queue(w.buf[:size])
	}
	if !w.in.Inject(queue, nil, w.buf[:size]) {
		w.refused++
		return false
	}
	w.sent++
	return true
}

// capture takes one frame and checks that it is the next of its flow, with all its bytes.
func (w *way) capture() (bool, error) {
	n := w.out.Capture(w.cap)
	if n == 0 {
		return false, nil
	}
	f := w.cap[port.VNetHdrLen:n]
	flow, seq := binary.BigEndian.Uint16(f[34:]), binary.BigEndian.Uint32(f[46:])
	if flow >= testFlows || seq != w.want[flow] {
		return true, fmt.Errorf("flow %d: frame %d came, want %d", flow, seq, w.want[flow%testFlows])
	}
	w.want[flow]++
	w.got++
	size := w.sizes[(int(seq)*testFlows+int(flow))%len(w.sizes)]
	if len(f) != size {
		return true, fmt.Errorf("flow %d: frame %d has %d bytes, want %d", flow, seq, len(f), size)
	}
	for i, b := range f[50:] {
		if b != byte(uint32(flow)*7+seq*31+uint32(i)) {
			return true, fmt.Errorf("flow %d: frame %d is damaged at byte %d", flow, seq, 50+i)
		}
	}
	return true, nil
}

// check compares the ledger, at rest, with what went in and came out.
func (w *way) check(t *testing.T) {
	t.Helper()
	// A frame can be captured before its worker has entered the batch.
	waitFor(t, "the ledger has every frame", func() bool {
		led := w.lane.ledger()
		return led.Rx-w.refused >= uint64(w.sent) && led.Tx >= uint64(w.got)
	})
	led := settle(t, w.lane)
	if led.Rx-w.refused != uint64(w.sent) || led.Tx != uint64(w.got) ||
		led.Drops[port.RxRingFull] != w.refused || led.Drops.Total() != w.refused {
		t.Errorf("ledger %+v, want %d in, %d out, %d refused", led, w.sent, w.got, w.refused)
	}
}

// waitFor polls until ok, and fails the test after a time that only a stuck worker needs.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); pause() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func allowed(t *testing.T) []int {
	t.Helper()
	set, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// workerThreads counts the threads that bear a worker's or poller's name.
func workerThreads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range tasks {
		comm, err := os.ReadFile("/proc/self/task/" + e.Name() + "/comm")
		if err == nil && len(comm) > 6 && string(comm[:6]) == "epair/" { // a thread may end meanwhile
			n++
		}
	}
	return n
}

func descriptors(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

// baseline returns how many workers and descriptors there are, once the threads of
// earlier tests have ended and only the given number is left.
func baseline(t *testing.T, workers int) (threads, fds int) {
	t.Helper()
	waitFor(t, "only this test's workers are left", func() bool { return workerThreads(t) == workers })
	return workers, descriptors(t)
}

// Both directions keep every flow's order and bytes, and lose nothing below capacity.
func TestBothWaysKeepOrderAndBytes(t *testing.T) {
	total := 300_000
	if raceEnabled {
		total = 36_000 // the cells together still make 300 000
	}
	if os.Getenv("EPAIR_FRAMES") != "" {
		total = frames(t)
	}
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{Slots: 512})
		ways := r.ways(60, 61, 128, 64, 250)
		progress := time.Now()
		for done := false; !done; {
			done = true
			moved := false
			for _, w := range ways {
				for w.sent < total/2 && w.sent-w.got < 256 && w.inject() {
				}
				for {
					some, err := w.capture()
					if err != nil {
						t.Fatal(err)
					}
					if !some {
						break
					}
					moved = true
				}
				done = done && w.got == total/2
			}
			if moved {
				progress = time.Now()
			} else if pause(); time.Since(progress) > 20*time.Second {
				t.Fatalf("stuck: %d of %d and %d of %d arrived", ways[0].got, ways[0].sent, ways[1].got, ways[1].sent)
			}
		}
		for _, w := range ways {
			w.check(t)
			if extra, _ := w.capture(); extra {
				t.Error("more came out than went in")
			}
		}
	})
}

// A burst ends although nothing follows it: after any silence, with frames in slots and in buffers.
func TestSilenceAfterBursts(t *testing.T) {
	bursts := 350 // thousands, over all cells
	if raceEnabled {
		bursts = 120
	}
	eachCell(t, func(t *testing.T, mode Mode, workers int) {
		r := newRig(t, mode, workers, memport.Config{Slots: 256, SlotLen: 256, MTU: 9000})
		ways := r.ways(60, 1500, 200, 100, 3000)
		late := 0
		for burst := range bursts {
			w := ways[burst%2]
			for n := 1 + burst*67%200; n > 0; {
				if w.inject() {
					n--
				} else {
					pause()
				}
			}
			start := time.Now()
			for w.got < w.sent {
				some, err := w.capture()
				if err != nil {
					t.Fatal(err)
				}
				if some {
					continue
				}
				if pause(); time.Since(start) > 2*time.Second {
					t.Fatalf("burst %d: %d frames are stuck", burst, w.sent-w.got)
				}
			}
			if time.Since(start) > 9*lookEvery/10 {
				late++
			}
			switch burst % 50 {
			case 7: // long enough for a poller to fall asleep
				time.Sleep(DefaultIdle + 2*time.Millisecond)
			case 13, 20, 31:
				time.Sleep(time.Duration(burst) * time.Microsecond)
			}
		}
		if late > 3 { // a busy machine may delay a few
			t.Errorf("%d bursts ended only when all ports were asked: wake-ups get lost", late)
		}
		for _, w := range ways {
			w.check(t)
		}
	})
}

// Every thread has its name, its CPU and the TID that Workers tells.
func TestWorkersTellTheirThreads(t *testing.T) {
	set := allowed(t)
	r := newRig(t, Polled, 2*len(set), memport.Config{})
	seen := map[int]bool{}
	infos := r.pool.Workers()
	if len(infos) != 2*len(set)+1 {
		t.Fatalf("%d workers, want %d and a poller", len(infos), 2*len(set))
	}
	for i, w := range infos {
		want, cpu, pair := fmt.Sprintf("epair/w%d", i), set[i%len(set)], ""
		if i == len(infos)-1 {
			want, cpu, pair = "epair/p0", set[0], "p"
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", w.TID))
		if err != nil {
			t.Fatal(err)
		}
		if w.Name != want || string(comm) != want+"\n" || w.CPU != cpu || w.Pair != pair || seen[w.TID] {
			t.Errorf("worker %+v on thread %q, want %s of pair %q on cpu %d", w, comm, want, pair, cpu)
		}
		seen[w.TID] = true
		var mask unix.CPUSet
		if err := unix.SchedGetaffinity(w.TID, &mask); err != nil {
			t.Fatal(err)
		}
		if mask.Count() != 1 || !mask.IsSet(cpu) {
			t.Errorf("%s may run on %d CPUs, want cpu %d alone", w.Name, mask.Count(), cpu)
		}
	}
	if slices.ContainsFunc(infos[:len(infos)-1], func(w WorkerInfo) bool { return w.Pair != "" }) {
		t.Error("a worker of the pool names a pair")
	}
}
