package control

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/rss"
)

func steeringFor(t *testing.T, workers int) *fanout.Steering {
	t.Helper()
	h, err := rss.New(rss.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := rss.ParseTable("equal", 0, workers)
	if err != nil {
		t.Fatal(err)
	}
	return fanout.NewSteering(h, table)
}

// Programs are loaded once for each hash and table, and given up with the last.
func TestSpreader(t *testing.T) {
	var s spreader
	by, other := steeringFor(t, 2), steeringFor(t, 3)
	first, err := s.programs(by)
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err)
	}
	if err != nil || first.by != by {
		t.Fatalf("programs %+v: %v", first, err)
	}
	if again, err := s.programs(by); again != first || err != nil {
		t.Errorf("asked again: %p, not %p: %v", again, first, err)
	}
	second, err := s.programs(other)
	if err != nil || second == first || second.by != other {
		t.Fatalf("for another table: %+v: %v", second, err)
	}
	if err := first.packet.SetIndex(by.Table(), nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the first programs' table is still open: %v", err)
	}
	for range 2 {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
	if err := second.tap.SetIndex(other.Table(), nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the last programs' table is still open: %v", err)
	}
}

// Who may not load programs is told what is missing, and isn't asked to try for each pair.
func TestSpreaderWithoutRights(t *testing.T) {
	var s spreader
	by := steeringFor(t, 2)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the thread, whose capabilities are gone
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &make([]unix.CapUserData, 2)[0]); err != nil {
			done <- err
			return
		}
		_, err := s.programs(by)
		done <- err
	}()
	if err := <-done; !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_BPF") {
		t.Errorf("without capabilities: %v", err)
	}
	if p, err := s.programs(by); p != nil || err == nil {
		t.Errorf("asked again: %v, %v", p, err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
