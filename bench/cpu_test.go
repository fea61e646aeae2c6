package bench

import (
	"strings"
	"testing"
	"time"
)

const stat = `cpu  100 5 50 1000 10 3 7 40 20 2
cpu0 60 5 20 500 4 1 2 30 20 2
cpu1 40 0 30 500 6 2 5 10 0 0
cpu10 1 0 0 0 0 0 0 0 0 0
intr 1 2 3
`

func TestBusyTime(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want time.Duration
	}{
		{nil, 0}, {[]int{0}, 880 * time.Millisecond}, {[]int{1}, 770 * time.Millisecond},
		{[]int{10}, 10 * time.Millisecond}, {[]int{0, 1}, 1650 * time.Millisecond},
	} {
		if got, err := parseBusyTime(stat, c.cpus); err != nil || got != c.want {
			t.Errorf("cpus %v: %s, %v, want %s", c.cpus, got, err, c.want)
		}
	}
	if got, err := parseCPUTime(stat); err != nil || got != 1650*time.Millisecond {
		t.Errorf("all: %s, %v", got, err)
	}
}

func TestBusyTimeOfWhatIsNotThere(t *testing.T) {
	for _, s := range []string{"", "cpu 1 2", "cpu  a 0 0 0 0 0 0 0\n", strings.ReplaceAll(stat, "cpu1 ", "cpu2 ")} {
		if _, err := parseBusyTime(s, []int{1}); err == nil {
			t.Errorf("%q: read", s)
		}
	}
	for _, s := range []string{"", "cpu 1 2", "cpu  a 0 0 0 0 0 0 0\n"} {
		if _, err := parseCPUTime(s); err == nil {
			t.Errorf("%q: read", s)
		}
	}
}

func TestCPUTimeRises(t *testing.T) {
	a, err := CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		b, err := CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		if b > a {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("busy for 10 s, and busy time is still %s", b)
		}
	}
}
