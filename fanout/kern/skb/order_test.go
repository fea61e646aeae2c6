package skb

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/cpus"
)

// traffic sends flows from several threads, each its own, and checks their order at the far end.
type traffic struct {
	t         *testing.T
	stop      atomic.Bool
	done      sync.WaitGroup
	sent      atomic.Uint64
	received  atomic.Uint64
	reordered atomic.Uint64
}

const flowsPerSender = 32

// start sends from one end to the other. With a pause, senders sleep so long between bursts of 16.
func start(t *testing.T, from, to *host, senders int, pause time.Duration) *traffic {
	tr := &traffic{t: t}
	rx := to.socket(t, unix.ETH_P_IP)
	stopped := make(chan struct{})
	tr.done.Go(func() { tr.receive(rx, stopped) })
	var sending sync.WaitGroup
	for s := range senders {
		tx := from.socket(t, 0)
		sending.Go(func() {
			runtime.LockOSThread() // the thread ends with its affinity
			if err := pin(s); err != nil {
				t.Error(err)
			}
			tr.send(tx, from, to, uint32(s*flowsPerSender), pause)
		})
	}
	tr.done.Go(func() { sending.Wait(); close(stopped) })
	return tr
}

// pin keeps the thread on one of the CPUs that it may use.
func pin(n int) error {
	on, err := cpus.Allowed()
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(on[n%len(on)])
	return unix.SchedSetaffinity(0, &set)
}

func (tr *traffic) send(tx int, from, to *host, first uint32, pause time.Duration) {
	frames := make([][]byte, flowsPerSender)
	for i := range frames {
		frames[i] = frame(to.mac, from.mac, first+uint32(i), 0, 100)
	}
	for seq, n := uint32(1), 0; !tr.stop.Load(); seq++ {
		for i, f := range frames {
			f[46], f[47], f[48], f[49] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
			if _, err := unix.Write(tx, f); err != nil && !errors.Is(err, unix.ENOBUFS) {
				tr.t.Errorf("send flow %d: %v", i, err)
				return
			}
			tr.sent.Add(1)
			if n++; n%16 == 0 && pause > 0 {
				time.Sleep(pause)
			}
		}
	}
}

// receive checks numbers until nothing comes any more.
func (tr *traffic) receive(rx int, stopped <-chan struct{}) {
	last := map[uint32]uint32{}
	buf := make([]byte, 2048)
	for {
		n, _, err := receive(rx, buf, 200*time.Millisecond)
		if err != nil {
			select {
			case <-stopped:
				return
			default:
				continue
			}
		}
		if n < 50 {
			continue
		}
		flow, seq := number(buf)
		if seq <= last[flow] {
			tr.reordered.Add(1)
		}
		last[flow] = max(last[flow], seq)
		tr.received.Add(1)
	}
}

func (tr *traffic) end() {
	tr.stop.Store(true)
	tr.done.Wait()
}

// flip gives all buckets other CPUs every 20 ms until stop.
func flip(l *lab, stop <-chan struct{}) error {
	on := l.policy.CPUs()
	equal := table(l.t, "", len(on))
	for n := 1; ; n++ {
		select {
		case <-stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		cpus := make([]int, len(on))
		for i := range cpus {
			cpus[i] = on[(i+n)%len(on)]
		}
		if err := l.policy.SetTable(equal, cpus); err != nil {
			return err
		}
	}
}

// awaitMoved waits until the table is in force.
func (l *lab) awaitMoved() {
	l.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := l.c.Moving()
		if err != nil {
			l.t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("%d buckets don't move", n)
		}
	}
}

// ordered are the topologies in which flows stay in order while things change. What is handed to an existing
// device (tc-pull) is out of sight there, and may overtake in what follows.
var ordered = []string{"direct", "tc", "tc-push"}

// Flows stay in order while all their buckets move from CPU to CPU, also in overload, when the backlogs lose frames;
// and the ledger has every frame, lost or not.
func TestOrderWhileTablesChange(t *testing.T) {
	for _, path := range ordered {
		for _, load := range []struct {
			name    string
			senders int
			pause   time.Duration
		}{{"paced", 1, time.Millisecond}, {"full", 3, 0}} {
			t.Run(path+"/"+load.name, func(t *testing.T) {
				l := newLab(t, path, kern.Pool)
				stop, flipped := make(chan struct{}), make(chan error)
				tr := start(t, &l.a, &l.b, load.senders, load.pause)
				go func() { flipped <- flip(l, stop) }()
				time.Sleep(400 * time.Millisecond)
				close(stop)
				if err := <-flipped; err != nil {
					t.Error(err)
				}
				tr.end()
				l.awaitMoved()
				led := l.balance(0, tr.sent.Load())
				t.Logf("received %d, reordered %d; %s", tr.received.Load(), tr.reordered.Load(), show(led))
				if tr.reordered.Load() != 0 || tr.received.Load() == 0 {
					t.Errorf("%d of %d reordered", tr.reordered.Load(), tr.received.Load())
				}
				for _, cpu := range l.policy.CPUs() {
					if led.PerCPU[cpu] == 0 {
						t.Errorf("no frame on cpu %d: %v", cpu, led.PerCPU)
					}
				}
			})
		}
	}
}

// The same while the mode changes. Senders stay on their CPUs: else mode inline itself, as any veth, would not
// keep their order.
func TestOrderWhileModesChange(t *testing.T) {
	for _, path := range ordered {
		t.Run(path, func(t *testing.T) {
			l := newLab(t, path, kern.Inline)
			modes := []kern.Mode{kern.Pool, kern.Inline}
			if path != "tc-push" {
				modes = []kern.Mode{kern.Pool, kern.Inline, kern.Poller, kern.Pool, kern.Poller, kern.Inline}
			}
			tr := start(t, &l.a, &l.b, 2, 100*time.Microsecond)
			for i := range 9 {
				mode := modes[i%len(modes)]
				_, err := l.c.SetMode(mode)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			tr.end()
			led := l.balance(0, tr.sent.Load())
			t.Logf("received %d, reordered %d; %s", tr.received.Load(), tr.reordered.Load(), show(led))
			if tr.reordered.Load() != 0 || tr.received.Load() == 0 {
				t.Errorf("%d of %d reordered", tr.reordered.Load(), tr.received.Load())
			}
		})
	}
}
