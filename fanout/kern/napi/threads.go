package napi

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/caps"
)

// Threads are the threads of a device's NAPIs that Start made.
//
// Concurrency contract: all methods may be called from any goroutine.
type Threads struct {
	list []kern.Thread

	mu      sync.Mutex
	started []uint32 // NAPIs that had no thread before
}

// Start gives every NAPI of the device a thread and pins the i-th to cpus[i % len(cpus)]. It
// needs CAP_NET_ADMIN and, for pinning, CAP_SYS_NICE. All or nothing: after an error
// the NAPIs are as they were.
func Start(d kern.Device, cpus []int) (*Threads, error) {
	t := &Threads{}
	if err := t.start(d, cpus); err != nil {
		return nil, errors.Join(fmt.Errorf("start napi threads of %s: %w", d.Name, err), t.Stop(d))
	}
	return t, nil
}

func (t *Threads) start(d kern.Device, cpus []int) error {
	if len(cpus) == 0 {
		return errors.New("no CPU is given for them")
	}
	before, err := List(d)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return fmt.Errorf("%w: it has no napi (set it up; a veth needs GRO on or an XDP program too)", kern.ErrRefused)
	}
	for _, n := range before {
		if n.Threaded {
			continue
		}
		t.started = append(t.started, n.ID)
		if err := SetThreaded(d, n.ID, true); err != nil {
			return err
		}
	}
	now, err := List(d)
	if err != nil {
		return err
	}
	for i, n := range now {
		if n.PID == 0 {
			return fmt.Errorf("napi %d has got no thread (is the device going down?)", n.ID)
		}
		th := kern.Thread{PID: n.PID, CPU: cpus[i%len(cpus)]}
		if err := Pin(th.PID, th.CPU); err != nil {
			return err
		}
		th.Name = nameOf(n.PID)
		t.list = append(t.list, th)
	}
	return nil
}

// List returns the threads, in the order of the NAPIs' IDs.
func (t *Threads) List() []kern.Thread { return append([]kern.Thread(nil), t.list...) }

// Adopt makes t's Stop take away the threads too that o started; o is used no more.
func (t *Threads) Adopt(o *Threads) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = append(t.started, o.started...)
	o.started = nil
}

// Made returns the NAPIs that Stop takes the thread away from.
func (t *Threads) Made() []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.started)
}

// Own makes t's Stop take away the threads of these NAPIs too: another process has made them.
func (t *Threads) Own(ids []uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if !slices.Contains(t.started, id) {
			t.started = append(t.started, id)
		}
	}
}

// StopAll takes all threads of a device's NAPIs away.
func StopAll(d kern.Device) error {
	all, err := List(d)
	if err != nil {
		return fmt.Errorf("stop napi threads of %s: %w", d.Name, err)
	}
	t := &Threads{}
	for _, n := range all {
		if n.Threaded {
			t.started = append(t.started, n.ID)
		}
	}
	return t.Stop(d)
}

// Stop takes the threads away that Start made. NAPIs that the device doesn't have any more have
// none. It is idempotent.
func (t *Threads) Stop(d kern.Device) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, id := range t.started {
		// ENOENT: netdev_nl_napi_set_doit; ENODEV: netns is ending.
		if err := SetThreaded(d, id, false); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, err)
		}
	}
	t.started = nil
	return errors.Join(errs...)
}

// Pin lets a kernel thread run on one CPU only.
func Pin(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return caps.Explain(fmt.Errorf("pin thread %d to CPU %d: %w", pid, cpu, err), caps.SysNice)
	}
	return nil
}

// policies are those of sched(7) that fit a kernel thread.
var policies = [...]struct {
	name     string
	number   uint32
	realtime bool
}{{"other", unix.SCHED_NORMAL, false}, {"batch", unix.SCHED_BATCH, false}, {"fifo", unix.SCHED_FIFO, true}, {"rr", unix.SCHED_RR, true}}

// Schedule sets the policy of a kernel thread: other and batch with a priority of 0, fifo and rr with one of 1 to 99. The
// thread yields to no other below its priority: with fifo or rr, a NAPI that is never empty takes its CPU for itself.
func Schedule(pid int, policy string, priority int) error {
	for _, p := range policies {
		if p.name != policy {
			continue
		}
		if p.realtime != (priority >= 1 && priority <= 99) || !p.realtime && priority != 0 {
			return fmt.Errorf("schedule thread %d: %w: policy %s with priority %d (fifo and rr take 1 to 99, others 0)", pid, unix.EINVAL, policy, priority)
		}
		err := unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: p.number, Priority: uint32(priority)}, 0)
		if err != nil {
			return caps.Explain(fmt.Errorf("schedule thread %d: %w", pid, err), caps.SysNice)
		}
		return nil
	}
	return fmt.Errorf("schedule thread %d: %w: policy %q (use other, batch, fifo or rr)", pid, unix.EINVAL, policy)
}

// nameOf returns what a thread is called, or "" when it's gone.
func nameOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
