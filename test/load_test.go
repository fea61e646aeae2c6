package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/cpus"
)

//	namespace a                              pair                        namespace b
//	a pinned sender, 64 flows numbered ── e0 ─ is changed all the time ─ e0 ── numbers rise

// numbers is frames that were sent, and what came of them.
type numbers struct {
	came, reordered, doubled int
	gaps                     int           // times a flow's numbers went on later
	silent                   time.Duration // the longest time without a frame
}

// sender sends numbered frames of all flows in turn, at a rate, from one CPU, past no hook or past all of them.
type sender struct {
	fd   int
	to   unix.SockaddrLinklayer
	sent [orderFlows]uint32
}

func newSender(t *testing.T, side string, bypass bool) *sender {
	t.Helper()
	s := &sender{}
	inNS(t, side, func() (err error) {
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		l, err := netlink.LinkByName("e0")
		if err != nil {
			return err
		}
		s.to = unix.SockaddrLinklayer{Ifindex: l.Attrs().Index}
		if bypass {
			err = errors.Join(err, unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
		}
		return err
	})
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

// run sends until stop, tick frames each millisecond.
func (s *sender) run(cpu, tick int, stop <-chan struct{}) error {
	runtime.LockOSThread() // and the thread ends with it
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	f := orderFrame()
	for flow := 0; ; {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
		for range tick {
			flow = (flow + 1) % orderFlows
			number(f, flow, s.sent[flow])
			if err := unix.Sendto(s.fd, f, 0, &s.to); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("send: %w", err)
			}
			s.sent[flow]++
		}
	}
}

func (s *sender) total() (n int) {
	for _, k := range s.sent {
		n += int(k)
	}
	return n
}

// follow checks what comes until it ends and nothing came for a while.
func follow(far *porttest.PacketFar, ended *atomic.Bool) (n numbers, err error) {
	var last [orderFlows]int
	for i := range last {
		last[i] = -1
	}
	for before := time.Now(); ; {
		_, f, err := far.Recv(200 * time.Millisecond)
		if err != nil {
			return n, err
		}
		if f == nil && ended.Load() {
			return n, nil
		}
		if len(f) < orderMark+8 || f[0] != 2 || f[5] != 0x77 {
			continue
		}
		now := time.Now()
		n.silent, before = max(n.silent, now.Sub(before)), now
		flow, k := binary.BigEndian.Uint32(f[orderMark:]), int(binary.BigEndian.Uint32(f[orderMark+4:]))
		n.came++
		switch {
		case k == last[flow]:
			n.doubled++
		case k < last[flow]:
			n.reordered++
		case k > last[flow]+1:
			n.gaps++
		}
		last[flow] = max(last[flow], k)
	}
}

// quiet makes an end's stack send nothing by itself.
func quiet(t *testing.T, side string) {
	t.Helper()
	inNS(t, side, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/e0/disable_ipv6", []byte("1"), 0) })
}

// monotonic watches that a pair's ledgers balance and never go back, until the returned function is called.
func monotonic(t *testing.T, d *control.Daemon) (stop func()) {
	t.Helper()
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		var last control.Pair
		for n := 0; !end.Load(); n++ {
			p, ok := d.Pair("p")
			if !ok {
				done <- errors.New("the pair is gone")
				return
			}
			if err := goesOn(&last, &p); err != nil && n > 0 {
				done <- err
				return
			}
			last = p
			time.Sleep(2 * time.Millisecond)
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

func goesOn(last, now *control.Pair) error {
	for i, x := range [][2]*control.Direction{{&last.AB, &now.AB}, {&last.BA, &now.BA}} {
		a, b := x[0], x[1]
		if b.Imbalance != 0 {
			return fmt.Errorf("way %d: off by %d: %+v", i, b.Imbalance, b)
		}
		if b.Rx < a.Rx || b.Tx < a.Tx || b.RxBytes < a.RxBytes || b.TxBytes < a.TxBytes {
			return fmt.Errorf("way %d of %s/%s: counters went back: %+v after %+v", i, now.Datapath, now.Mode, b, a)
		}
		for reason, n := range a.Drops {
			if b.Drops[reason] < n {
				return fmt.Errorf("way %d of %s/%s: drops %s went from %d to %d", i, now.Datapath, now.Mode, reason, n, b.Drops[reason])
			}
		}
		for k, s := range a.Workers {
			if k >= len(b.Workers) || b.Workers[k].Rx < s.Rx || b.Workers[k].Tx < s.Tx {
				return fmt.Errorf("way %d of %s/%s: worker %d went back: %+v after %+v", i, now.Datapath, now.Mode, k, b.Workers, s)
			}
		}
	}
	return nil
}

// load is a sender and who follows what comes of it.
type load struct {
	d          *control.Daemon
	s          *sender
	stop       chan struct{}
	ended      atomic.Bool
	sent, came chan error
	n          numbers
	born       control.Pair
	watched    func()
}

// startLoad lets end a send to end b, tick frames each millisecond.
func startLoad(t *testing.T, d *control.Daemon, tick int, bypass bool) *load {
	t.Helper()
	quiet(t, "a")
	quiet(t, "b")
	far := orderFar(t, "b")
	l := &load{d: d, s: newSender(t, "a", bypass), stop: make(chan struct{}), sent: make(chan error, 1), came: make(chan error, 1)}
	l.born = atRest(t, d)
	l.watched = monotonic(t, d)
	cpu := lastCPU(t)
	go func() { l.sent <- l.s.run(cpu, tick, l.stop) }()
	go func() { var err error; l.n, err = follow(far, &l.ended); l.came <- err }()
	return l
}

// end checks that nothing was overtaken, and returns how many frames are missing and how many the ledger names.
func (l *load) end(t *testing.T) (lost, named uint64) {
	t.Helper()
	close(l.stop)
	if err := <-l.sent; err != nil {
		t.Error(err)
	}
	p := atRest(t, l.d)
	l.ended.Store(true)
	if err := <-l.came; err != nil {
		t.Error(err)
	}
	l.watched()
	if l.n.reordered > 0 || l.n.doubled > 0 || l.n.came == 0 {
		t.Errorf("%+v", l.n)
	}
	lost, named = uint64(l.s.total()-l.n.came), sum(p.AB.Drops)-sum(l.born.AB.Drops)
	t.Logf("sent %d, came %d, longest silence %v, drops %v", l.s.total(), l.n.came, l.n.silent, p.AB.Drops)
	return lost, named
}

// atRest waits until nothing is queued.
func atRest(t *testing.T, d *control.Daemon) control.Pair {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		before, p := d.Pairs()[0], d.Pairs()[0]
		if p.AB.Queued == 0 && p.BA.Queued == 0 && p.AB.Rx == before.AB.Rx {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("never at rest: %+v", p)
		}
	}
}

func sum(drops map[string]uint64) (n uint64) {
	for _, k := range drops {
		n += k
	}
	return n
}

func lastCPU(t *testing.T) int {
	t.Helper()
	all, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return all[len(all)-1]
}
