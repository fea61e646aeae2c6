package xdp

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// contender joins ao and bo. start returns when it runs.
type contender struct {
	name  string
	start func(t testing.TB, w *world) running
}

// running is a contender at work.
type running struct {
	worker string // directory of its worker thread in /proc
	stop   func() // returns when nothing of it is left
}

// The load has the first CPU, the contender's worker the second.
const loadCPU, workCPU = 0, 1

// TestCompare measures the frame rate of one worker against others that do the same, in
// interleaved rounds. EPAIR_BENCH is the number of rounds. The rate is that at the sink; the cost is the
// processor time of the worker thread, softirqs that it runs included, which the machine's other
// load changes less.
func TestCompare(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("EPAIR_BENCH"))
	if err != nil {
		t.Skip("set EPAIR_BENCH to a number of rounds")
	}
	all := []contender{{"epair", startOurs}, {"one UMEM per end, copies each frame", startCopier}, {"testpmd io", startTestpmd}}
	for _, xdp := range []bool{true, false} {
		name := map[bool]string{true: "XDP sink", false: "tcx sink"}[xdp]
		rates, costs := make([][]float64, len(all)), make([][]float64, len(all))
		for range rounds {
			for i, c := range all {
				r, ns := measure(t, c, xdp)
				rates[i], costs[i] = append(rates[i], r), append(costs[i], ns)
			}
		}
		for i, c := range all {
			t.Logf("%s: %-36s %s Mpps, epair %.3f ×;  %s ns/frame, epair %.3f ×", name, c.name,
				describe(rates[i]), median(ratios(rates[0], rates[i])), describe(costs[i]), median(ratios(costs[i], costs[0])))
		}
		if m := median(ratios(rates[0], rates[2])); m < 1 {
			t.Errorf("%s: %.3f × testpmd", name, m)
		}
	}
}

// measure runs one contender in a fresh world and returns Mpps at the sink and its worker's time per frame.
func measure(t *testing.T, c contender, xdp bool) (mpps, cost float64) {
	t.Run(c.name, func(t *testing.T) {
		w := newWorld(t, 1500, 1)
		s := newSink(t, w.veth[1].InnerNS, w.veth[1].InnerIndex, xdp)
		r := c.start(t, w)
		defer r.stop()
		l := startLoad(t, w.veth[0].InnerNS, w.veth[0].InnerIndex, loadCPU, testFrame(64))
		defer l.end(t)
		waitFor(t, "the sink to see frames", func() bool { return s.frames(t) > 100000 })
		start, n, cpu := time.Now(), s.frames(t), cpuTime(t, r.worker)
		time.Sleep(time.Second) // the length of the measurement
		n, cpu = s.frames(t)-n, cpuTime(t, r.worker)-cpu
		mpps, cost = float64(n)/time.Since(start).Seconds()/1e6, float64(cpu)/float64(n)
	})
	return mpps, cost
}

// cpuTime returns how long a thread has run.
func cpuTime(t testing.TB, dir string) (ns uint64) {
	b, err := os.ReadFile(dir + "/schedstat")
	if err == nil {
		_, err = fmt.Sscan(string(b), &ns)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func ratios(a, b []float64) []float64 {
	var r []float64
	for i := range a {
		r = append(r, a[i]/b[i])
	}
	return r
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func describe(x []float64) string {
	return fmt.Sprintf("%.3f (%.3f–%.3f)", median(x), slices.Min(x), slices.Max(x))
}

// testFrame is a UDP datagram that checks out, with zeroes for its payload.
func testFrame(size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, byte(size - 14), 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	return f
}

// startOurs runs one worker that forwards both ways, as testpmd does.
func startOurs(t testing.TB, w *world) running {
	p, err := Open(w.config(PairConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	rxA, txA := halves(t, p.A)
	rxB, txB := halves(t, p.B)
	batch := make([]port.Frame, port.MaxBatch)
	var tally port.Tally
	return spin(t, func() {
		n, _ := rxA.Receive(batch)
		txB.Send(rxA, batch[:n], &tally)
		n, _ = rxB.Receive(batch)
		txA.Send(rxB, batch[:n], &tally)
	}, rxA.Close, rxB.Close, txA.Close, txB.Close, p.Close)
}

// spin calls turn on a thread pinned to workCPU, until stop.
func spin(t testing.TB, turn func(), end ...func() error) running {
	var stopped atomic.Bool
	done, tid := make(chan error), make(chan int)
	go func() {
		err := pinned(workCPU)
		tid <- unix.Gettid()
		for err == nil && !stopped.Load() {
			turn()
		}
		done <- err
	}()
	return running{fmt.Sprintf("/proc/self/task/%d", <-tid), func() {
		stopped.Store(true)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, fn := range end {
			if err := fn(); err != nil {
				t.Error(err)
			}
		}
	}}
}

// patience is how long anything may take on a loaded machine.
const patience = 20 * time.Second

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}
