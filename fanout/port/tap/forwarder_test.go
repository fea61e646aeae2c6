package tap

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/wake"
)

// forwarder moves frames between two devices on one thread, as a worker does that serves
// both directions of a pair.
type forwarder struct {
	wait  *wake.Waiter
	arena *port.Arena
	rx    [2]port.Rx
	tx    [2]port.Tx // tx[i] takes what rx[i] received
	tally [2]port.Tally
	err   error // why it stopped by itself
	stop  atomic.Bool
	done  chan struct{}
}

// startForwarder joins a (direction 0 starts here) and b.
func startForwarder(t testing.TB, a, b *device, mtu int) *forwarder {
	t.Helper()
	f := &forwarder{done: make(chan struct{})}
	var err error
	if f.arena, err = port.NewArena(4 * port.MaxBatch); err != nil {
		t.Fatal(err)
	}
	if f.wait, err = wake.New(); err != nil {
		t.Fatal(err)
	}
	w := port.Worker{Arena: f.arena}
	f.rx[0], f.tx[1] = a.open(t, w, mtu)
	f.rx[1], f.tx[0] = b.open(t, w, mtu)
	for i, r := range f.rx {
		if err := f.wait.Add(r.FD(), int32(i)); err != nil {
			t.Fatal(err)
		}
	}
	go f.run()
	t.Cleanup(func() { f.close(t) })
	return f
}

func (f *forwarder) run() {
	runtime.LockOSThread() // never unlocked
	defer close(f.done)
	var batch [port.MaxBatch]port.Frame
	for !f.stop.Load() {
		more := false
		for i := range f.rx {
			n, err := f.rx[i].Receive(batch[:])
			if err != nil {
				f.err = err // one thread releases all before it receives again, so no error is expected
				return
			}
			if n > 0 {
				f.tx[i].Send(f.rx[i], batch[:n], &f.tally[i])
			}
			more = more || n == len(batch)
		}
		if more {
			continue
		}
		f.wait.Arm()
		if f.stop.Load() {
			return
		}
		f.wait.Sleep(time.Second)
	}
}

// halt stops the thread; what it counted may be read then.
func (f *forwarder) halt(t testing.TB) {
	t.Helper()
	f.stop.Store(true)
	f.wait.Wake()
	<-f.done
	if f.err != nil {
		t.Errorf("receive: %v", f.err)
	}
}

func (f *forwarder) close(t testing.TB) {
	t.Helper()
	f.halt(t)
	if n := f.arena.InUse(); n != 0 {
		t.Errorf("%d buffers are still in use", n)
	}
	if err := errors.Join(f.wait.Close(), f.arena.Close()); err != nil {
		t.Error(err)
	}
}

const (
	addrA = "10.0.0.1"
	addrB = "10.0.0.2"
)

// newHosts makes two namespaces that reach each other through a forwarder.
//
//	10.0.0.1 (tap0) ── a [forwarder] b ── (tap0) 10.0.0.2
func newHosts(t testing.TB, mtu int) (a, b *device, f *forwarder) {
	t.Helper()
	a, b = newTAP(t, "tap0", mtu), newTAP(t, "tap0", mtu)
	addAddr(t, a.ns, "tap0", addrA+"/24")
	addAddr(t, b.ns, "tap0", addrB+"/24")
	return a, b, startForwarder(t, a, b, mtu)
}

func addAddr(t testing.TB, ns *porttest.NS, ifname, addr string) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := netlink.LinkByName(ifname)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(l, a)
	})
	if err != nil {
		t.Fatalf("add %s to %s: %v", addr, ifname, err)
	}
}
