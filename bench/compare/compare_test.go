package compare

import (
	"context"
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
	"github.com/epair-net/epair/internal/cpus"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		used    string
		n       int
		share   bool
		forward string // "!" is refused
	}{
		{"0-3", 1, false, "1-3"}, {"0-3", 2, false, "2-3"}, {"0-3", 1, true, "0-3"}, {"2", 1, false, "2"},
		{"0-1", 3, false, "!"}, {"0-1", 0, false, "!"}, {"", 1, false, "!"},
	} {
		used, err := cpus.Parse(c.used)
		if err != nil {
			t.Fatal(err)
		}
		p, err := PlaceOn(used, c.n, c.share)
		if (err != nil) != (c.forward == "!") || err == nil && cpus.Format(p.Forward) != c.forward {
			t.Errorf("%+v: %+v %v", c, p, err)
		}
	}
}

func TestBaselinesFollowTheCells(t *testing.T) {
	pick := func(names ...string) (list []subject.Subject) {
		for _, s := range slices.Concat(baseline.All(), cell.All()) {
			if slices.Contains(names, s.Name) {
				list = append(list, s)
			}
		}
		return list
	}
	for _, c := range []struct {
		names []string
		want  string // of the first
	}{
		{[]string{"veth"}, "frame skb"},
		{[]string{"veth", "direct/pool"}, "skb"},
		{[]string{"veth", "xdp/pool"}, "frame"},
		{[]string{"veth", "xdp/pool", "tc/pool"}, "frame skb"},
		{[]string{"xdp-redirect", "direct/pool"}, ""},
	} {
		cfg := Config{Subjects: pick(c.names...)}
		var got []string
		for _, m := range cfg.modes(&cfg.Subjects[0]) {
			got = append(got, m.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v", c.names, got)
		}
	}
}

func TestCheck(t *testing.T) {
	ok := Config{Subjects: baseline.All(), Setup: "a", Rounds: 1, Time: time.Second, Size: 64, Flows: 1, Measure: Rates(0)}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Subjects = nil }, func(c *Config) { c.Rounds = 0 }, func(c *Config) { c.Time = 0 },
		func(c *Config) { c.Flows = 0 }, func(c *Config) { c.Rounds = 1 << 40 }, func(c *Config) { c.Size = 20 }, func(c *Config) { c.Size = 9019 }, func(c *Config) { c.Size, c.Modes = 5000, []load.Mode{load.Frame} }, func(c *Config) { c.Measure = Rates() },
	} {
		c := ok
		change(&c)
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("ran %+v", c)
		}
	}
}

// small is a comparison of a baseline, one that is refused, and a cell.
func small(t *testing.T) Config {
	t.Helper()
	used, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	p, err := PlaceOn(used, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "") // so that asavie is missing for sure
	var list []subject.Subject
	for _, s := range slices.Concat(baseline.All(), cell.All()) {
		if s.Name == "veth" || s.Name == "asavie" || s.Name == "user-tap/inline" {
			list = append(list, s)
		}
	}
	return Config{
		Scenario: "compare", Subjects: list, Setup: "a", Rounds: 2, Time: 100 * time.Millisecond, Sink: load.Skb,
		Size: 64, Flows: 16, Measure: Rates(0, 1000), Place: p, Command: []string{"x"}, Version: "v",
	}
}

func need(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF)")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRunTakesTurns(t *testing.T) {
	c := small(t)
	var order []string
	for i := range c.Subjects {
		s := &c.Subjects[i]
		join, name := s.Join, s.Name
		s.Join = func(ctx context.Context, o subject.Options, l []subject.Link) (subject.Made, error) {
			order = append(order, name)
			return join(ctx, o, l)
		}
	}
	done := -1
	c.Progress = func(p Progress) {
		if p.Done < done || p.Done > p.Total {
			t.Errorf("progress from %d to %+v", done, p)
		}
		done = p.Done
	}
	f, err := Run(t.Context(), c)
	need(t, err)
	if got := strings.Join(order, " "); got != "veth asavie user-tap/inline veth user-tap/inline" {
		t.Errorf("order %s", got)
	}
	if done != 12 {
		t.Errorf("%d of 12 done", done)
	}
	if f.Partial || len(f.Rows) != 6 || f.Settings.LoadLimit["frame"].PPS <= 0 {
		t.Fatalf("%+v", f)
	}
	for i, r := range f.Rows {
		if refused := r.Cell == "asavie"; refused != (r.Refused != "") || refused != (len(r.Rounds) == 0) {
			t.Errorf("row %d: %+v", i, r)
		}
		if r.Cell == "asavie" {
			continue
		}
		if len(r.Rounds) != 2 || r.Rounds[1].Round != 2 || r.Rounds[0].Offered == 0 || r.Offloads == nil || r.Rounds[0].Noise == nil {
			t.Errorf("row %d: %+v", i, r)
		}
		if paced := r.Rate > 0; paced && r.PPS != nil && r.Latency == nil || !paced && (r.Latency != nil || r.PPS == nil) {
			t.Errorf("row %d: latency %+v, rate %+v", i, r.Latency, r.PPS)
		}
	}
	if f.Rows[4].Ratio["veth"] <= 0 {
		t.Errorf("no ratio: %+v", f.Rows[4])
	}
}

// An interrupt leaves what was finished, and nothing else.
func TestInterrupted(t *testing.T) {
	c := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Progress = func(p Progress) {
		if p.Done == 3 { // in the middle of the cell
			cancel()
		}
	}
	c.Subjects = slices.DeleteFunc(c.Subjects, func(s subject.Subject) bool { return s.Name == "asavie" })
	before := fds(t)
	f, err := Run(ctx, c)
	if !errors.Is(err, context.Canceled) {
		need(t, err)
		t.Fatal("not interrupted")
	}
	if !f.Partial || len(f.Rows[0].Rounds) != 1 || len(f.Rows[2].Rounds) != 1 || len(f.Rows[3].Rounds) != 0 {
		t.Errorf("%+v", f.Rows)
	}
	var text strings.Builder
	if err := f.Text(&text); err != nil || !strings.Contains(text.String(), "INTERRUPTED") {
		t.Errorf("%v %s", err, &text)
	}
	for end := time.Now().Add(5 * time.Second); fds(t) > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, before %d", fds(t), before)
		}
	}
}

func fds(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A subject that breaks later has invalid rounds; the others go on.
func TestLaterFailure(t *testing.T) {
	c := small(t)
	c.Subjects = c.Subjects[:1]
	c.Measure = Measure{Variants: []Variant{{Name: "x"}}, Sockets: true, Do: func(_ context.Context, v *Visit) error {
		if v.Round == 2 {
			return errors.New("broke")
		}
		v.Add(0, report.Round{PPS: 5}, nil)
		return nil
	}}
	f, err := Run(t.Context(), c)
	need(t, err)
	r := f.Rows[0]
	if len(r.Rounds) != 2 || r.Rounds[1].Invalid != "broke" || r.PPS.N != 1 || r.Load != "socket" {
		t.Errorf("%+v", r)
	}
}
