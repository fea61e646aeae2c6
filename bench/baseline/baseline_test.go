package baseline_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/baseline"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/internal/cpus"
)

// deadline bounds how long a baseline may take to carry its first frames on a busy machine.
const deadline = 20 * time.Second

// Each baseline carries frames in each set-up and mode, and leaves nothing behind.
func TestBaselinesCarryFrames(t *testing.T) {
	for _, s := range baseline.All() {
		t.Run(s.Name, func(t *testing.T) {
			if !s.Baseline {
				t.Error("isn't marked as a baseline")
			}
			for _, c := range []struct {
				setup string
				mode  load.Mode
			}{{"a", s.Modes[0]}, {"b", load.Skb}} {
				before := state(t)
				carries(t, s, c.setup, c.mode)
				await(t, before)
			}
		})
	}
}

func carries(t *testing.T, s subject.Subject, setup string, mode load.Mode) {
	t.Helper()
	set, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	top, err := s.New(t.Context(), subject.Options{Setup: setup, Mode: mode, CPUs: set[len(set)-1:]})
	switch {
	case errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1":
		t.Skip(err, "(needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF)")
	case errors.Is(err, subject.ErrAbsent):
		t.Skip(err) // what isn't ours may be missing
	case err != nil:
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(top.Close(), top.Close()); err != nil {
			t.Error(err)
		}
	}()
	tr, err := bench.NewTrial(top, load.Config{Mode: mode, CPUs: set[:1], Flows: 8, Size: 60, Rate: 2000})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	// A program of others may be ready before its ports are.
	for end := time.Now().Add(deadline); ; {
		r, err := tr.Run(t.Context(), 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if r.Delivered > r.Offered || r.Reordered > 0 {
			t.Fatalf("set-up %s: %+v", setup, r)
		}
		if r.Offered > 0 && r.Delivered > r.Offered/2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("set-up %s, %s: %d of %d frames came", setup, mode, r.Delivered, r.Offered)
		}
	}
}

// left is what could stay behind.
type left struct{ fds, goroutines, dirs int }

func state(t *testing.T) (l left) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "epair-[do]*-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left{len(fds), runtime.NumGoroutine(), len(dirs)}
}

// await waits until no more is there than before: goroutines end a moment after what they served.
func await(t *testing.T, before left) {
	t.Helper()
	var now left
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now = state(t); now.fds <= before.fds && now.goroutines <= before.goroutines && now.dirs <= before.dirs {
			return
		}
	}
	t.Errorf("left behind: %+v, before %+v", now, before)
}

func TestCancelledStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range baseline.All() {
		before := state(t)
		top, err := s.New(ctx, subject.Options{Setup: "a", CPUs: []int{0}})
		if err == nil {
			err = top.Close() // it doesn't wait for anything
		}
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, subject.ErrAbsent) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", s.Name, err)
		}
		await(t, before)
	}
}

func TestUnknownSetup(t *testing.T) {
	for _, s := range baseline.All() {
		if top, err := s.New(t.Context(), subject.Options{Setup: "c"}); err == nil {
			t.Errorf("%s: made %v", s.Name, top)
		}
	}
}
