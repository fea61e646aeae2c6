package napi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/ethtool"
)

// device is the outer side of a veth with a number of queues, with GRO on or off.
func device(t *testing.T, queues int, gro bool) (kern.Device, *porttest.Veth) {
	t.Helper()
	v := porttest.NewVeth(t, porttest.NewNS(t), porttest.NewNS(t), "n", 1500, queues)
	err := v.OuterNS.Do(func() error {
		_, err := ethtool.SetFeatures(v.Outer, map[string]bool{"rx-gro": gro})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kern.Device{NetNS: v.OuterNS.FD(), Ifindex: v.OuterIndex, Name: v.Outer}, v
}

func allowed(t *testing.T) []int {
	t.Helper()
	c, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func list(t *testing.T, d kern.Device) []NAPI {
	t.Helper()
	all, err := List(d)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestThreads(t *testing.T) {
	const queues = 3
	d, _ := device(t, queues, true)
	before := list(t, d)
	if len(before) != queues {
		t.Fatalf("%d napis, want %d: %+v", len(before), queues, before)
	}
	// One that somebody gave a thread keeps it.
	if err := SetThreaded(d, before[1].ID, true); err != nil {
		t.Fatal(err)
	}
	set := allowed(t)
	th, err := Start(d, set)
	if err != nil {
		t.Fatal(err)
	}
	now := list(t, d)
	for i, k := range th.List() {
		if n := now[i]; !n.Threaded || n.PID != k.PID || n.ID != before[i].ID || k.CPU != set[i%len(set)] {
			t.Errorf("%d: napi %+v, thread %+v", i, n, k)
		}
		if want := fmt.Sprintf("napi/%s-%d", d.Name, now[i].ID); k.Name != want {
			t.Errorf("thread is called %q, want %q", k.Name, want)
		}
		var on unix.CPUSet
		if err := unix.SchedGetaffinity(k.PID, &on); err != nil || on.Count() != 1 || !on.IsSet(k.CPU) {
			t.Errorf("thread %d runs on %v (%v)", k.PID, on, err)
		}
	}
	if err := errors.Join(th.Stop(d), th.Stop(d)); err != nil {
		t.Fatal(err)
	}
	for i, n := range list(t, d) {
		if n.Threaded != (i == 1) {
			t.Errorf("after Stop: %+v", n)
		}
	}
	if k := th.List()[0]; nameOf(k.PID) != "" {
		t.Errorf("thread %+v is still there", k)
	}
}

func TestSchedule(t *testing.T) {
	d, _ := device(t, 1, true)
	th, err := Start(d, allowed(t))
	if err != nil {
		t.Fatal(err)
	}
	pid := th.List()[0].PID
	for _, c := range []struct {
		policy   string
		priority int
		want     error
	}{{"fifo", 3, nil}, {"rr", 99, nil}, {"batch", 0, nil}, {"other", 0, nil},
		{"fifo", 0, unix.EINVAL}, {"other", 1, unix.EINVAL}, {"rr", 100, unix.EINVAL}, {"idle", 0, unix.EINVAL}} {
		if err := Schedule(pid, c.policy, c.priority); !errors.Is(err, c.want) {
			t.Errorf("%s %d: %v, want %v", c.policy, c.priority, err, c.want)
		}
		if c.want != nil {
			continue
		}
		if a, err := unix.SchedGetAttr(pid, 0); err != nil || a.Priority != uint32(c.priority) {
			t.Errorf("%s %d: %+v %v", c.policy, c.priority, a, err)
		}
	}
	if err := th.Stop(d); err != nil {
		t.Fatal(err)
	}
	if err := Schedule(pid, "fifo", 1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a thread that is gone: %v", err)
	}
	if err := Pin(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a thread that is gone: %v", err)
	}
}

func TestNoNAPI(t *testing.T) {
	d, _ := device(t, 1, false)
	if _, err := Start(d, allowed(t)); !errors.Is(err, kern.ErrRefused) || !strings.Contains(err.Error(), "GRO") {
		t.Errorf("without GRO: %v", err)
	}
	d.Ifindex += 1000
	if _, err := Start(d, allowed(t)); !errors.Is(err, unix.ENODEV) && !errors.Is(err, kern.ErrRefused) {
		t.Errorf("no device: %v", err)
	}
	if _, err := Start(d, nil); err == nil {
		t.Error("no CPU: no error")
	}
}

// A device that has been down has other NAPIs, or is gone: Stop isn't bothered.
func TestGone(t *testing.T) {
	d, v := device(t, 2, true)
	th, err := Start(d, allowed(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := porttest.DeleteLink(v.OuterNS, v.Outer); err != nil {
		t.Fatal(err)
	}
	if err := th.Stop(d); err != nil {
		t.Error(err)
	}
}

// When a thread can't be pinned, no NAPI keeps a thread.
func TestUndo(t *testing.T) {
	d, _ := device(t, 2, true)
	if _, err := Start(d, []int{allowed(t)[0], 1023}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a CPU that isn't there: %v", err)
	}
	for _, n := range list(t, d) {
		if n.Threaded {
			t.Errorf("left behind: %+v", n)
		}
	}
}

// An error names the capability that is missing.
func TestCapabilities(t *testing.T) {
	d, _ := device(t, 1, true)
	th, err := Start(d, allowed(t))
	if err != nil {
		t.Fatal(err)
	}
	err = without(unix.CAP_SYS_NICE, func() error { return Schedule(th.List()[0].PID, "fifo", 1) })
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "missing CAP_SYS_NICE") {
		t.Errorf("without CAP_SYS_NICE: %v", err)
	}
}

// without runs fn on a thread that lacks a capability, and ends with it.
func without(c uint, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&hdr, &data[0])
		data[c/32].Effective &^= 1 << (c % 32)
		if err == nil {
			err = unix.Capset(&hdr, &data[0])
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}
