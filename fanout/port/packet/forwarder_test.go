package packet

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// forwarder joins the two ends of a world as a worker does that serves them
// both: it sleeps until a descriptor is ready.
type forwarder struct {
	rx   [2]*Rx
	tx   [2]*Tx // tx[i] takes what rx[i] received
	got  [2]atomic.Uint64
	sent [2]port.Tally
	done atomic.Bool
	wg   sync.WaitGroup
}

// start starts forwarding; it ends with the test, or by stop.
func (w *world) start(t testing.TB, slots int) *forwarder {
	t.Helper()
	s := w.sender(t)
	f := &forwarder{
		rx: [2]*Rx{w.rx(t, w.a, slots), w.rx(t, w.b, slots)},
		tx: [2]*Tx{w.tx(t, s, w.b), w.tx(t, s, w.a)},
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range f.rx {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(i)}
		if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, r.FD(), &ev); err != nil {
			t.Fatal(err)
		}
	}
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		defer unix.Close(epfd)
		defer pinTo(t, lastCPU(t))()
		f.loop(t, epfd)
	}()
	t.Cleanup(f.stop)
	return f
}

// stop stops forwarding. The counts may be read then.
func (f *forwarder) stop() {
	f.done.Store(true)
	f.wg.Wait()
}

func (f *forwarder) loop(t testing.TB, epfd int) {
	var ev [2]unix.EpollEvent
	batch := make([]port.Frame, port.MaxBatch)
	more := [2]bool{true, true} // the descriptor won't tell
	for !f.done.Load() {
		msec := 20
		if more[0] || more[1] {
			msec = 0
		}
		n, err := unix.EpollWait(epfd, ev[:], msec)
		if err != nil && err != unix.EINTR {
			t.Errorf("wait: %v", err)
			return
		}
		for _, e := range ev[:max(n, 0)] {
			more[e.Fd] = true
		}
		for i, r := range f.rx {
			if !more[i] {
				continue
			}
			n, err := r.Receive(batch)
			more[i] = n == len(batch) || err == port.ErrNoBuffer
			f.tx[i].Send(r, batch[:n], &f.sent[i])
			f.got[i].Add(uint64(n))
		}
	}
}

// check checks that every frame received was sent or dropped for a reason, and
// returns how many were lost on the way from end i.
func (f *forwarder) check(t testing.TB, i int) uint64 {
	t.Helper()
	f.stop()
	if got := f.got[i].Load(); f.sent[i].Frames+f.sent[i].Drops.Total() != got {
		t.Errorf("end %d: received %d, sent %+v", i, got, f.sent[i])
	}
	return f.lost(i) + f.sent[i].Drops.Total()
}

// lost is what end i lost in front of Receive.
func (f *forwarder) lost(i int) uint64 {
	s := f.rx[i].Stats()
	return s.Drops.Total()
}

// firstCPU and lastCPU are CPUs that the test may run on, two if there are:
// for what plays the network, and for the forwarder.
func firstCPU(t testing.TB) int { return allowedCPUs(t)[0] }

func lastCPU(t testing.TB) int { c := allowedCPUs(t); return c[len(c)-1] }

func allowedCPUs(t testing.TB) (cpus []int) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// addr gives an interface an IPv4 address.
func addr(t testing.TB, ns *porttest.NS, ifname, cidr string) {
	t.Helper()
	if err := porttest.AddAddr(ns, ifname, cidr); err != nil {
		t.Fatal(err)
	}
}
