package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/compare"
	"github.com/epair-net/epair/bench/report"
)

// benchCommand runs a command line and returns what it printed.
func benchCommand(t *testing.T, ctx context.Context, want int, args ...string) (out, errs string) {
	t.Helper()
	var o, e strings.Builder
	if got := execute(ctx, append([]string{"bench"}, args...), &o, &e); got != want {
		if strings.Contains(e.String(), unix.EPERM.Error()) && os.Getenv("EPAIR_REQUIRE") != "1" {
			t.Skip(e.String())
		}
		t.Fatalf("%v: exit status %d, want %d: %s", args, got, want, &e)
	}
	return o.String(), e.String()
}

func TestBenchCompare(t *testing.T) {
	t.Setenv("PATH", "") // so that asavie is missing for sure
	dir := t.TempDir()
	data, page := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html")
	args := []string{"compare", "--rounds", "1", "--time", "200ms", "--cells", "user-tap/inline,user-tap/pool", "--baselines", "veth,asavie", "--html", page}
	out, _ := benchCommand(t, t.Context(), exitDone, append(args, "--json", data)...)
	for _, want := range []string{"frame load, tcx sink, 64-byte frames", "veth *", "user-tap/inline", "user-tap/pool", "Not measured: asavie", "Fewer than 3 rounds"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	f, err := report.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Rows) != 4 || f.Partial || f.Machine.Kernel == "" || len(f.Command) == 0 {
		t.Errorf("%+v", f)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "<svg") {
		t.Errorf("page: %v", err)
	}
	out, _ = benchCommand(t, t.Context(), exitDone, "diff", data, data)
	if !strings.Contains(out, report.NoiseOnly) || strings.Contains(out, "differs") {
		t.Errorf("a file differs from itself:\n%s", out)
	}
}

// Scripts get JSON and nothing else.
func TestBenchJSON(t *testing.T) {
	out, errs := benchCommand(t, t.Context(), exitDone, "throughput", "--rounds", "1", "--time", "50ms", "--cells", "none", "--baselines", "veth", "--load", "skb", "--json")
	if !strings.HasPrefix(out, "{") || !strings.Contains(out, report.Schema) || errs != "" {
		t.Errorf("%s %s", out, errs)
	}
}

// A log hears of the progress at once and then every ten seconds.
func TestBenchProgressInLog(t *testing.T) {
	var log strings.Builder
	e := &env{err: &log}
	p := compare.Progress{Done: 1, Total: 10, What: "x", Left: 90 * time.Second}
	e.benchProgress(p)
	e.benchProgress(p)
	e.told = e.told.Add(-logEvery)
	e.benchProgress(p)
	if want := strings.Repeat("1 of 10, 1m30s left: x\n", 2); log.String() != want {
		t.Errorf("%q", &log)
	}
}

func TestBenchInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	out, errs := benchCommand(t, ctx, exitFailed, "throughput", "--rounds", "50", "--time", "100ms", "--cells", "none", "--baselines", "veth", "--load", "skb")
	if !strings.Contains(out, "INTERRUPTED") || !strings.Contains(errs, "interrupted") {
		t.Errorf("%s %s", out, errs)
	}
}

func TestBenchUsage(t *testing.T) {
	for _, args := range [][]string{
		{"compare", "--cells", "nosuch"}, {"compare", "--baselines", "nosuch"}, {"compare", "--rounds", "0"}, {"compare", "--size", "3"},
		{"compare", "--size", "x"}, {"compare", "--load", "x"}, {"compare", "--sink", "x"}, {"compare", "--rates", "fast"}, {"compare", "--rates", "-5"},
		{"compare", "--cpus", "x"}, {"compare", "--load-cpus", "0"}, {"compare", "extra"}, {"compare", "--setup", "c"}, {"diff", "one"},
		{"diff", "/nonexistent/a", "/nonexistent/b"}, {"latency", "--rate", "max"}, {"switch", "--every", "0s"}, {"rr", "--sessions", "0"},
		{"udp", "--receiver", "x"}, {"udp", "--receiver", ""}, {"udp", "--size", "64"}, {"udp", "--cpus", "0"},
		{"compare", "--ip6", "101"}, {"compare", "--ip6", "50"}, {"compare", "--size", "9000", "--load", "frame"},
	} {
		_, errs := benchCommand(t, t.Context(), exitUsage, args...)
		if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "epair: ") {
			t.Errorf("%v: %q", args, errs)
		}
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{"max": 0, "50": 50, "50k": 5e4, "1.5M": 1.5e6} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "k", "-1", "1kM", "NaN", "Inf", "1e10"} {
		if r, err := parseRate(text); err == nil {
			t.Errorf("%q: %g", text, r)
		}
	}
}
