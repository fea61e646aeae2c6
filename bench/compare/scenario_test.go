package compare

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/baseline"
	"github.com/epair-net/epair/bench/cell"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/report"
	"github.com/epair-net/epair/bench/subject"
)

// once runs a scenario over some subjects, once and for a short time.
func once(t *testing.T, m Measure, setup string, names ...string) *report.File {
	t.Helper()
	c := small(t)
	c.Subjects, c.Setup, c.Measure, c.Rounds = nil, setup, m, 1
	for _, s := range slices.Concat(baseline.All(), cell.All()) {
		if slices.Contains(names, s.Name) {
			c.Subjects = append(c.Subjects, s)
		}
	}
	f, err := Run(t.Context(), c)
	need(t, err)
	for _, r := range f.Rows {
		if r.Refused != "" && strings.Contains(r.Refused, unix.EPERM.Error()) && os.Getenv("EPAIR_REQUIRE") != "1" {
			t.Skip(r.Refused)
		}
	}
	return f
}

func TestSocketsReachEachOther(t *testing.T) {
	for _, setup := range []string{"a", "b"} {
		f := once(t, TCP(1, 2), setup, "veth", "bridge", "xdp-redirect", "user-packet/pool")
		for _, r := range f.Rows {
			if r.Refused != "" || r.Gbps == nil || r.PPS != nil || r.Values["CPUs busy"].N != 1 {
				t.Errorf("set-up %s, %s: %+v", setup, r.Cell, r)
			}
		}
	}
	f := once(t, RR([]int{1, 2}, []int{1, 100}), "b", "veth")
	for _, r := range f.Rows {
		if r.Values["requests/s"].Median <= 0 || r.Latency == nil || r.Load != "socket" {
			t.Errorf("%s: %+v", r.Variant, r)
		}
	}
}

func TestSwitchHasATimeline(t *testing.T) {
	f := once(t, Switch(Switching{Rate: 2000, Every: 20 * time.Millisecond, Modes: []string{"inline", "pool"}}), "a", "veth", "user-packet/pool")
	if f.Rows[0].Refused == "" {
		t.Error("a veth has nothing to change")
	}
	r := f.Rows[1]
	if r.Refused != "" || r.Switch == nil || len(r.Switch.Frames) == 0 || len(r.Rounds) != 1 {
		t.Fatalf("%+v", r)
	}
	if n := r.Rounds[0].Values["changes"]; int(n) != len(r.Switch.Events) {
		t.Errorf("%g changes, %d events", n, len(r.Switch.Events))
	}
}

// With one CPU there is no other for the receiver.
func TestUDPReceivers(t *testing.T) {
	f := once(t, UDP(NoReceiver, LoadReceiver), "a", "veth", "direct/inline")
	for _, r := range f.Rows {
		if r.Refused != "" || r.PPS == nil || r.Rounds[0].OfferedPPS < r.PPS.Median || r.Load != "socket" {
			t.Errorf("%+v", r)
		}
	}
	if _, err := (Place{Load: []int{0}, Forward: []int{0}}).receiver(OtherReceiver); err == nil {
		t.Error("another CPU was found")
	}
	if cpu, err := (Place{Load: []int{0}, Forward: []int{0, 3}}).receiver(OtherReceiver); err != nil || cpu[0] != 3 {
		t.Errorf("%v %v", cpu, err)
	}
}

func TestPairsAreCounted(t *testing.T) {
	f := once(t, Pairs(2), "a", "veth", "user-packet/inline")
	if f.Rows[0].Refused == "" {
		t.Error("a veth makes no pairs")
	}
	r := f.Rows[1]
	if r.Refused != "" || r.Values["created/s"].Median <= 0 || r.Values["removed/s"].Median <= 0 || r.PPS == nil {
		t.Errorf("%+v", r)
	}
}

// On a machine with other work a pace can't always be kept: then the row says so.
func TestSearchAndLatency(t *testing.T) {
	for _, m := range []Measure{Search("ndr", 0), Latency()} {
		f := once(t, m, "a", "user-tap/inline")
		for _, r := range f.Rows {
			switch {
			case strings.Contains(r.Refused, "search rate"), strings.Contains(r.Refused, "lost some"):
			case r.Refused != "" || len(r.Rounds) != 1:
				t.Errorf("%+v", r)
			case r.Rounds[0].Invalid == "" && r.PPS == nil:
				t.Errorf("no rate: %+v", r)
			}
		}
	}
}

func TestRefusedLoad(t *testing.T) {
	for _, s := range cell.All() {
		if s.Name != "user-packet/pool" {
			continue
		}
		_, err := s.New(t.Context(), subject.Options{Setup: "a", Mode: load.Frame, CPUs: []int{0}})
		if !errors.Is(err, subject.ErrAbsent) {
			need(t, err)
			t.Error("frames would vanish, and nothing says so")
		}
	}
}
