package xdp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// census counts what a crossing may leave behind.
type census struct{ fds, goroutines int }

func count(t *testing.T) (c census) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	c.fds, c.goroutines = len(fds), runtime.NumGoroutine()
	return c
}

// Pairs made and closed leave nothing behind, nor do those that can't be made.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t, 1500, 2)
	bad := w.config(kern.Inline)
	bad.B.Inner.Ifindex = 9999
	one := func(m kern.Mode) {
		x, err := New(w.config(m))
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	one(kern.Pool) // what crossings share
	if x, err := New(bad); err == nil {
		x.Close()
		t.Fatal("an inner side that isn't there")
	}
	before := count(t)
	const pairs = 40
	for i := range pairs {
		one([]kern.Mode{kern.Inline, kern.Inline, kern.Inline, kern.Poller, kern.Pool}[max(i-pairs+5, 0)])
		if x, err := New(bad); err == nil {
			x.Close()
			t.Fatal("an inner side that isn't there")
		}
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if now := count(t); now.fds == before.fds && now.goroutines <= before.goroutines {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("before %+v, behind %+v", before, now)
		}
	}
	s, err := sharedOf(w.policy)
	if err != nil {
		t.Fatal(err)
	}
	for i, taken := range s.ports {
		if taken {
			t.Errorf("port %d is still taken", i)
		}
	}
	var id device
	if err := s.o.EpairLost.NextKey(nil, &id); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("losses of %+v are still noted (%v)", id, err)
	}
	for _, v := range w.veth {
		if id := attached(t, v.OuterNS, v.Outer) + attached(t, v.InnerNS, v.Inner); id != 0 {
			t.Errorf("a program is left on %s or %s", v.Outer, v.Inner)
		}
	}
}

// When the policy is closed, its workers and programs at tracepoints end.
func TestPolicyEndsWorkers(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p, _ := newPolicy(t)
	c := w.config(kern.Pool)
	c.Policy = p
	x := mustNew(t, c)
	s, err := sharedOf(p)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.o.EpairCpus.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	progs := map[ebpf.ProgramID]bool{}
	for _, l := range s.links {
		info, err := l.Info()
		if err != nil {
			t.Fatal(err)
		}
		progs[info.Program] = true
	}
	if len(progs) != 3 {
		t.Errorf("%d programs at tracepoints", len(progs))
	}
	if err := errors.Join(x.Close(), p.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		m, err := ebpf.NewMapFromID(id)
		if err == nil {
			m.Close()
			return false
		}
		for it := new(link.Iterator); it.Next(); {
			if info, err := it.Link.Info(); err == nil && progs[info.Program] {
				return false
			}
		}
		return errors.Is(err, os.ErrNotExist)
	}
	for deadline := time.Now().Add(5 * time.Second); !gone(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the map of CPUs, or a tracing link, is still there")
		}
	}
}

// Threads go with the mode, and with the pair.
func TestPollerThreads(t *testing.T) {
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Poller)
	dev := kern.Device{NetNS: w.outer.FD(), Ifindex: w.veth[0].OuterIndex, Name: "ao"}
	threaded := func() (n int) {
		all, err := napi.List(dev)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Threaded {
				n++
			}
		}
		return n
	}
	for _, th := range x.Threads() {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", th.PID))
		if err != nil || strings.TrimSpace(string(comm)) != th.Name || !strings.HasPrefix(th.Name, "napi/") {
			t.Errorf("thread %+v is called %q (%v)", th, comm, err)
		}
	}
	if n := threaded(); n != 2 || len(x.Threads()) != 4 {
		t.Errorf("%d NAPIs of ao have threads; %+v", n, x.Threads())
	}
	if _, err := x.SetMode(kern.Pool); err != nil {
		t.Fatal(err)
	}
	if n := threaded(); n != 0 || len(x.Threads()) != 0 {
		t.Errorf("in mode pool, %d NAPIs of ao have threads", n)
	}
	if _, err := x.SetMode(kern.Poller); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if n := threaded(); n != 0 {
		t.Errorf("%d NAPIs of ao have threads behind Close", n)
	}
}

// A device that was down has other NAPIs: they get threads too.
func TestPollerDeviceFlaps(t *testing.T) {
	w := newWorld(t, 1500, 1)
	x := w.cross(t, kern.Poller)
	before := x.Threads()
	for _, up := range []bool{false, true} {
		if err := porttest.SetLink(w.outer, "ao", up); err != nil {
			t.Fatal(err)
		}
	}
	porttest.WaitRunning(t, w.outer, "ao")
	now := x.Threads()
	if len(now) != 2 || len(before) != 2 || now[0].PID == before[0].PID || now[1] != before[1] {
		t.Errorf("threads %+v became %+v", before, now)
	}
	w.ping(t, 0, 10)
	w.ping(t, 1, 10)
}
