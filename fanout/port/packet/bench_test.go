package packet

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// The benchmarks forward between two veth pairs:
//
//	CPU 0: load ─▶ a inner ── a outer ─▶ CPU 1: forwarder ─▶ b outer ── b inner: counted
//
// They need two CPUs and report what arrived and what was lost on the way. Run:
//
//	go test -run - -bench Forward -benchtime 1x ./fanout/port/packet

// trial is how long one measurement lasts.
const trial = time.Second

func BenchmarkForward(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w := newWorld(b, 1500, 16)
			defer startForwarder(b, w)()
			measureLoad(b, w, size)
		})
	}
}

// BenchmarkForwardAgainst interleaves our forwarder with DPDK's testpmd on two net_af_packet devices.
func BenchmarkForwardAgainst(b *testing.B) {
	testpmd, err := exec.LookPath("dpdk-testpmd")
	if err != nil {
		b.Skip("dpdk-testpmd isn't installed")
	}
	for round := range 5 {
		b.Run(fmt.Sprintf("round=%d/epair", round), func(b *testing.B) {
			w := newWorld(b, 1500, 16)
			defer startForwarder(b, w)()
			measureLoad(b, w, 64)
		})
		b.Run(fmt.Sprintf("round=%d/testpmd", round), func(b *testing.B) {
			w := newWorld(b, 1500, 16)
			defer startTestpmd(b, w, testpmd)()
			measureLoad(b, w, 64)
		})
	}
}

// measureLoad loads a's inner side for a trial per iteration and reports what arrived at b's.
func measureLoad(b *testing.B, w *world, size int) {
	load := newLoad(b, w.a, size)
	const some = 300_000
	frames := uint32(some * float64(trial) / float64(load.run(b, some)))
	for b.Loop() {
		waitQuiet(b, w.b)
		before := arrivedAt(b, w.b)
		took := load.run(b, frames)
		waitQuiet(b, w.b)
		n := arrivedAt(b, w.b) - before
		b.ReportMetric(float64(n)/took.Seconds()/1e6, "Mpps")
		b.ReportMetric(float64(took.Nanoseconds())/float64(n), "ns/frame")
		b.ReportMetric(float64(frames)/took.Seconds()/1e6, "Mpps-offered")
		b.ReportMetric(100*(1-float64(n)/float64(frames)), "%lost")
	}
}

// arrivedAt counts the frames that the inner side of v got.
func arrivedAt(b *testing.B, v *porttest.Veth) (n uint64) {
	b.Helper()
	err := v.InnerNS.Do(func() error {
		l, err := netlink.LinkByName(v.Inner)
		if err == nil {
			n = l.Attrs().Statistics.RxPackets
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func waitQuiet(b *testing.B, v *porttest.Veth) {
	for last := arrivedAt(b, v); ; {
		time.Sleep(10 * time.Millisecond)
		n := arrivedAt(b, v)
		if n == last {
			return
		}
		last = n
	}
}

// pinTo keeps the calling goroutine on a thread on one CPU until the returned function is called.
func pinTo(tb testing.TB, cpu int) func() {
	tb.Helper()
	runtime.LockOSThread()
	var old, one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		tb.Fatal(err)
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		tb.Errorf("pin to CPU %d: %v", cpu, err)
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &old)
		runtime.UnlockOSThread()
	}
}

// startForwarder forwards from a to b on CPU 1, as a spinning worker does.
func startForwarder(b *testing.B, w *world) (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Add(1)
	ready := make(chan struct{})
	s := w.sender(b)
	rx, tx := w.rx(b, w.a, 0), w.tx(b, s, w.b)
	go func() {
		defer wg.Done()
		defer pinTo(b, 1)()
		close(ready)
		batch := make([]port.Frame, port.MaxBatch)
		var t port.Tally
		for !done.Load() {
			n, err := rx.Receive(batch)
			if err != nil {
				b.Errorf("receive: %v", err)
				return
			}
			tx.Send(rx, batch[:n], &t)
		}
	}()
	<-ready
	return func() { done.Store(true); wg.Wait() }
}

// startTestpmd does the same by DPDK.
func startTestpmd(b *testing.B, w *world, path string) (stop func()) {
	b.Helper()
	cmd := exec.Command(path, "--no-huge", "-m", "128", "--no-pci", "-l", "0-1", "--no-telemetry",
		"--file-prefix", fmt.Sprintf("epair%d", unix.Getpid()),
		"--vdev=net_af_packet0,iface="+w.a.Outer, "--vdev=net_af_packet1,iface="+w.b.Outer,
		"--", "--forward-mode=io", "--auto-start", "--no-mlockall", "--total-num-mbufs=16384")
	stdin, err := cmd.StdinPipe() // it ends when this is closed
	if err != nil {
		b.Fatal(err)
	}
	if err := w.outer.Do(cmd.Start); err != nil {
		b.Fatal(err)
	}
	far, probe := w.far(b, w.b), w.far(b, w.a)
	for end := time.Now().Add(20 * time.Second); ; {
		_ = probe.Send(nil, make([]byte, 60))
		if _, f, _ := far.Recv(100 * time.Millisecond); f != nil {
			break
		}
		if time.Now().After(end) {
			b.Fatal("testpmd doesn't forward")
		}
	}
	_ = far.Close() // it would cost what our own row doesn't pay
	return func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// BenchmarkReceiveNothing is what a poller pays to look at an idle port.
func BenchmarkReceiveNothing(b *testing.B) {
	w := newWorld(b, 1500, 4)
	rx := w.rx(b, w.a, 0)
	batch := make([]port.Frame, port.MaxBatch)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := rx.Receive(batch); n != 0 || err != nil {
			b.Fatalf("%d frames, error %v", n, err)
		}
	}
}
