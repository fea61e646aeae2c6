package load

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// thread is a generator at work.
type thread struct {
	c        *generator
	tid      atomic.Int64
	stopping atomic.Bool
	breath   sync.WaitGroup // the thread that breathes
	done     chan error     // holds the thread's end, once
}

// spin starts c on a thread of its own, in the namespace, bound to its CPU.
func spin(c *generator, ns int, paced bool) *thread {
	th := &thread{c: c, done: make(chan error, 1)}
	batch := uint32(batchMax)
	if paced {
		batch = batchPaced
	}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		th.tid.Store(int64(unix.Gettid()))
		th.done <- th.run(ns, batch)
	}()
	th.breath.Go(th.breathe)
	return th
}

// breathTime is often enough for the kernel's readers-copy-update not to wait longer than on an idle machine, and
// costs a thousandth of the CPU.
const breathTime = 5 * time.Millisecond

// breathe makes the generator's CPU switch threads now and then. With nobody else there, the generator would never leave it, so that what
// waits for all CPUs to have been somewhere else (synchronize_rcu: programs and interfaces that come or go) takes
// 165 ms instead of 15, and a live change under load would seem slow for the load's sake. CPUs busy with real
// frames don't hold it up, as the kernel's own loops report to it.
func (th *thread) breathe() {
	runtime.LockOSThread() // for good, as the thread is bound
	if err := bind(th.c.cpu); err != nil {
		return // run says so
	}
	for !th.stopping.Load() {
		// Not time.Sleep: it's this thread that has to sleep and to wake here.
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(breathTime)}, nil) // EINTR: sooner, as well
	}
}

func bind(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to cpu %d: %w", cpu, err)
	}
	return nil
}

func (th *thread) run(ns int, batch uint32) error {
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	if err := bind(th.c.cpu); err != nil {
		return err
	}
	if err := th.c.engine.run(batch, &th.stopping); err != nil {
		return fmt.Errorf("run generator on cpu %d: %w", th.c.cpu, err)
	}
	return nil
}

// stop ends the thread. The signal is the one by which Go's scheduler interrupts threads: without effect
// but for the call that it ends. It is repeated since one that comes just before the call is lost.
func (th *thread) stop() error {
	th.stopping.Store(true)
	for {
		if tid := th.tid.Load(); tid != 0 {
			// ESRCH: it has ended.
			if err := unix.Tgkill(os.Getpid(), int(tid), unix.SIGURG); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("stop generator: %w", err)
			}
		}
		select {
		case err := <-th.done:
			th.breath.Wait()
			return err
		case <-time.After(poll):
		}
	}
}
