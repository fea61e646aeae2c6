package wake

import (
	"math/rand"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newWaiter(t *testing.T) *Waiter {
	t.Helper()
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Several wakers add work and stop; the sleeper must always see the last of it.
// A lost wake-up would hang it for good, with work in the counter.
func TestNoWakeUpIsLost(t *testing.T) {
	w := newWaiter(t)
	const wakers, rounds = 4, 5000
	var added atomic.Int64
	for i := range wakers {
		go func() {
			r := rand.New(rand.NewSource(int64(i)))
			for range rounds {
				added.Add(1)
				w.Wake()
				for range r.Intn(200) { // vary the gap, so that wakers meet the sleeper at every step
					_ = added.Load()
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for seen := int64(0); seen < wakers*rounds; {
			w.Arm()
			if n := added.Load(); n != seen {
				seen = n
				w.Disarm()
				continue
			}
			w.Sleep(time.Minute)
		}
	}()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatalf("sleeper hangs after %d of %d items", added.Load(), wakers*rounds)
	}
}

func TestWakeOnlyWhenIdle(t *testing.T) {
	w := newWaiter(t)
	if w.Wake() {
		t.Error("woke a running sleeper")
	}
	w.Arm()
	if !w.Wake() {
		t.Error("did not wake an idle sleeper")
	}
	if w.Wake() {
		t.Error("woke a sleeper twice")
	}
	if got := w.Sleep(time.Minute); len(got) != 0 {
		t.Errorf("a plain wake-up reported descriptors %v", got)
	}
	if w.Wake() {
		t.Error("woke a sleeper that had just woken")
	}
}

// Each write is a new edge, though the eventfd is never read.
func TestRepeatedWake(t *testing.T) {
	w := newWaiter(t)
	for range 1000 {
		w.Arm()
		if !w.Wake() {
			t.Fatal("idle sleeper not woken")
		}
		w.Sleep(time.Minute) // hangs if the edge is missing
	}
}

func TestDescriptors(t *testing.T) {
	w := newWaiter(t)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	if err := w.Add(p[0], 7); err != nil {
		t.Fatal(err)
	}
	if got := w.Poll(); len(got) != 0 {
		t.Fatalf("empty pipe is ready: %v", got)
	}
	if _, err := unix.Write(p[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	w.Arm()
	if got := w.Sleep(time.Minute); len(got) != 1 || got[0] != 7 {
		t.Fatalf("got tokens %v, want [7]", got)
	}
	if got := w.Poll(); len(got) != 0 {
		t.Fatalf("an edge came twice: %v", got)
	}
	if err := w.Remove(p[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(p[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	if got := w.Poll(); len(got) != 0 {
		t.Fatalf("removed descriptor is ready: %v", got)
	}
	if err := w.Add(p[0], 8); err != nil {
		t.Fatal(err)
	}
	if got := w.Poll(); len(got) != 1 || got[0] != 8 {
		t.Fatalf("got tokens %v, want [8]: ready before it was added", got)
	}
}
