package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/epair-net/epair/control"
)

// asCommand makes the test binary the command, so that tests run it as users do.
const asCommand = "EPAIR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("EPAIR_REQUIRE") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

// world is a daemon in a process of its own, and the command that asks it.
type world struct {
	t      *testing.T
	socket string
	daemon *exec.Cmd
	ended  chan error // gets what Wait said
	said   outputFile // by the daemon, on both outputs
	killed bool
}

// outputFile is what a child prints into.
type outputFile string

func (f outputFile) String() string {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func command(ctx context.Context, socket string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "EPAIR_SOCKET="+socket)
	return cmd
}

// startDaemon runs `epair run` with args. It is stopped at the end, and must end well.
func startDaemon(t *testing.T, args ...string) *world {
	t.Helper()
	return startDaemonBy(t, (*exec.Cmd).Start, args...)
}

// startDaemonBy is startDaemon with another way to start a process.
func startDaemonBy(t *testing.T, start func(*exec.Cmd) error, args ...string) *world {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	w := &world{t: t, socket: filepath.Join(dir, "s"), said: outputFile(filepath.Join(dir, "log"))}
	w.daemon = command(context.Background(), w.socket, append([]string{"run"}, args...)...)
	log, err := os.Create(string(w.said))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w.daemon.Stdout, w.daemon.Stderr = log, log
	if err := start(w.daemon); err != nil {
		t.Fatal(err)
	}
	w.ended = make(chan error, 1)
	go func() { w.ended <- w.daemon.Wait() }()
	t.Cleanup(w.stop)
	w.await()
	return w
}

// await waits until the daemon answers.
func (w *world) await() {
	w.t.Helper()
	late := time.After(30 * time.Second)
	for !strings.Contains(w.said.String(), "answering on") {
		select {
		case err := <-w.ended:
			w.killed = true
			w.t.Fatalf("the daemon ended: %v: %s", err, w.said)
		case <-late:
			w.t.Fatalf("the daemon doesn't answer: %s", w.said)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// kill ends the daemon as a crash does.
func (w *world) kill() {
	w.t.Helper()
	if err := w.daemon.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	<-w.ended // says that it was killed
	w.killed = true
}

func (w *world) stop() {
	if w.killed {
		return
	}
	if err := w.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Error(err)
	}
	if err := <-w.ended; err != nil {
		w.t.Errorf("daemon: %v\n%s", err, w.said)
	}
}

// run runs a command line, and returns its exit status and what it printed.
func (w *world) run(args ...string) (status int, out, errs string) {
	w.t.Helper()
	cmd := command(w.t.Context(), w.socket, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// must runs a command line that has to succeed and say something that contains all of want.
func (w *world) must(want []string, args ...string) string {
	w.t.Helper()
	status, out, errs := w.run(args...)
	if status != 0 || errs != "" {
		w.t.Fatalf("%v: status %d\n%s%s", args, status, out, errs)
	}
	for _, s := range want {
		if !strings.Contains(out, s) {
			w.t.Errorf("%v: no %q in\n%s", args, s, out)
		}
	}
	return out
}

// fails runs a command line that has to fail with that status, and one line that contains want.
func (w *world) fails(status int, want string, args ...string) {
	w.t.Helper()
	got, out, errs := w.run(args...)
	if got != status || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "epair: ") || !strings.Contains(errs, want) {
		w.t.Errorf("%v: status %d, want %d and %q\n%s%s", args, got, status, want, out, errs)
	}
}

// parse runs a command line with --json, and reads what it prints.
func parse[T any](w *world, args ...string) (v T) {
	w.t.Helper()
	out := w.must(nil, append(args, "--json")...)
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		w.t.Fatalf("%v: %v in\n%s", args, err, out)
	}
	return v
}

// end is an end in a namespace of this test's own.
func end(name, side string) string {
	return fmt.Sprintf("veth:%s@epair-cmd-%d-%s", name, os.Getpid(), side)
}

func TestPairVerbs(t *testing.T) {
	w := startDaemon(t)
	w.must([]string{"NAME"}, "list")
	w.must([]string{"web  user/pool", "datapath user: as configured"},
		"add", "web", "--a", end("e0", "a"), "--a-address", "10.1.0.1/24", "--b", end("e0", "b"), "--b-address", "10.1.0.2/24", "--datapath", "user")
	added := parse[control.Pairs](w, "add", "in", "--a", end("e1", "a"), "--b", end("e1", "b"), "--mode", "inline", "--datapath", "user", "--mtu", "9000")
	if p := added.Pairs[0]; p.Mode != "inline" || p.A.MTU != 9000 || p.State != "up" {
		t.Errorf("%+v", p)
	}
	w.fails(1, "web", "add", "web", "--a", end("e2", "a"), "--b", end("e2", "b"))
	w.fails(2, "two ends", "add", "x", "--a", end("e2", "a"))
	w.fails(2, "--a", "add", "x", "--a", "veth:e2", "--b", end("e2", "b"))
	w.fails(2, "mtu", "add", "x", "--a", end("e2", "a"), "--b", end("e2", "b"), "--mtu", "5")
	w.fails(2, "NAME", "add", "--a", end("e2", "a"), "--b", end("e2", "b"))
	w.must([]string{"web", "in", "up"}, "list")
	w.must([]string{"user/pool", "10.1.0.1/24", "a→b"}, "show", "web")
	w.fails(1, "no such pair", "show", "nix")
	w.must([]string{"user/poller", "took"}, "set", "web", "mode=poller")
	if c := parse[control.Changed](w, "set", "web", "mode=pool"); c.Pair.Mode != "pool" || c.Change.TookMicros <= 0 {
		t.Errorf("%+v", c)
	}
	w.must([]string{"nothing to change"}, "set", "web", "mode=pool")
	w.fails(2, "mode", "set", "web", "mode=fast")
	w.fails(2, "unknown key", "set", "web", "speed=1")
	w.fails(2, "KEY=VALUE", "set", "web")
	w.fails(1, "datapath", "set", "web", "datapath=direct")
	w.fails(1, "nix", "set", "nix", "mode=pool")
	w.must([]string{"every ledger balances"}, "audit")
	w.fails(1, "nix", "del", "web", "nix")
	if _, out, _ := w.run("__complete", "del", "in", ""); !strings.HasPrefix(out, "web\n") {
		t.Errorf("completion of del: %s", out)
	}
	if _, out, _ := w.run("__complete", "set", "web", ""); !strings.Contains(out, "mode=pool\n") {
		t.Errorf("completion of set: %s", out)
	}
	w.must([]string{"deleted in web"}, "del", "in", "web")
	w.fails(1, "web", "del", "web")
	w.fails(2, "NAME", "del")
	if l := parse[control.Pairs](w, "list"); len(l.Pairs) != 0 {
		t.Errorf("%+v", l)
	}
}

func TestAddFile(t *testing.T) {
	w := startDaemon(t)
	write := func(text string) string {
		f := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	pairs := "pairs:\n"
	for i := range 3 {
		pairs += fmt.Sprintf("- {name: f%d, datapath: user, mode: inline, a: {kind: veth, name: e%d, netns: epair-cmd-%d-a}, b: {kind: veth, name: e%d, netns: epair-cmd-%d-b}}\n",
			i, i, os.Getpid(), i, os.Getpid())
	}
	w.must([]string{"f0  user/inline", "f2  user/inline"}, "add", "-f", write("version: epair/v1\n"+pairs))
	w.fails(2, "pool, rss or poller", "add", "-f", write("version: epair/v1\nrss: {symmetric: true}\n"+pairs))
	w.fails(2, "line 2", "add", "-f", write("version: epair/v1\npears: []\n"))
	w.fails(2, "leave out", "add", "x", "-f", write("version: epair/v1\n"+pairs))
	w.fails(2, "no such file", "add", "-f", "/not/there")
	w.must(nil, "del", "f0", "f1", "f2")
}

func TestStatAndTop(t *testing.T) {
	w := startDaemon(t)
	w.must(nil, "add", "web", "--a", end("e0", "a"), "--b", end("e0", "b"), "--datapath", "user")
	w.must([]string{"epair/w0", "web"}, "stat", "web")
	w.fails(1, "nix", "stat", "nix")
	w.fails(2, "--watch", "stat", "--count", "2")
	w.fails(2, "--interval", "stat", "--watch", "--interval", "0s")
	w.fails(1, "nix", "stat", "nix", "--watch")
	out := w.must(nil, "stat", "--watch", "--count", "2", "--interval", "20ms", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines {
		var r rates
		if err := json.Unmarshal([]byte(l), &r); err != nil || len(r.Pairs) != 1 || len(r.Workers) == 0 || r.Interval <= 0 {
			t.Errorf("%v: %q", err, l)
		}
	}
	if len(lines) != 2 {
		t.Errorf("%d lines", len(lines))
	}
	w.must([]string{"web", "epair/w0", "BUSY"}, "top", "--once", "--interval", "20ms")
	if r := parse[rates](w, "top", "--interval", "20ms"); len(r.Pairs) != 1 || r.Pairs[0].Mode != "pool" {
		t.Errorf("%+v", r)
	}
	w.fails(2, "isn't a terminal", "top")
}

func TestPoolAndGC(t *testing.T) {
	w := startDaemon(t)
	p := parse[control.Pool](w, "pool", "show")
	w.must([]string{"cpus " + p.CPUs, "epair/w0"}, "pool", "show")
	if c := parse[control.PoolChanged](w, "pool", "set", "cpus="+p.CPUs); c.Pool.CPUs != p.CPUs {
		t.Errorf("%+v", c)
	}
	w.fails(2, "cpus=LIST", "pool", "set", "cpu=1")
	w.fails(2, "4096", "pool", "set", "cpus=4096")
	w.fails(1, "workers", "pool", "set", "cpus="+p.CPUs+","+p.CPUs)
	w.must(nil, "gc", "--dry-run")
	w.fails(2, "unexpected", "gc", "now")
}

// gc lists what a crash left, and removes just that.
func TestGCAfterCrash(t *testing.T) {
	w := startDaemon(t)
	ns := fmt.Sprintf("epair-cmd-%d-gone", os.Getpid())
	w.must(nil, "add", "x", "--a", "veth:e0@"+ns, "--b", end("e0", "b"), "--datapath", "user")
	victim := startDaemon(t)
	lost := ns + "-2"
	victim.must(nil, "add", "y", "--a", "veth:e0@"+lost, "--b", "veth:e1@"+lost, "--datapath", "user")
	victim.kill()
	for _, dry := range []bool{true, false} {
		args, verb := []string{"gc"}, "removed"
		if dry {
			args, verb = append(args, "--dry-run"), "would remove"
		}
		out := w.must([]string{verb + " namespace " + lost}, args...)
		if strings.Contains(out, ns+"\n") {
			t.Errorf("what runs is garbage: %s", out)
		}
	}
	if g := parse[control.Garbage](w, "gc", "--dry-run"); strings.Contains(strings.Join(g.Found, "\n"), lost) {
		t.Errorf("%+v", g)
	}
	if p := parse[control.Pair](w, "show", "x"); p.State != "up" {
		t.Errorf("x is %s", p.State)
	}
}

func TestRSSVerbs(t *testing.T) {
	w := startDaemon(t)
	w.must(nil, "add", "web", "--a", end("e0", "a"), "--b", end("e0", "b"), "--datapath", "user")
	c := parse[control.RSSChanged](w, "rss", "set", "--symmetric", "--fields", "udp4=sd")
	if !c.RSS.Symmetric || c.RSS.Fields["udp4"] != "sd" {
		t.Errorf("%+v", c)
	}
	live := parse[control.RSS](w, "rss", "show", "--live")
	if !live.Symmetric || live.Fields["udp4"] != "sd" || live.Fields["tcp4"] != "sdfn" {
		t.Errorf("%+v", live)
	}
	if mine := parse[control.RSS](w, "rss", "show"); mine.Symmetric {
		t.Errorf("without --live: %+v", mine)
	}
	w.fails(2, "nothing to change", "rss", "set")
	w.fails(2, "--live", "rss", "show", "--live", "--func", "xxhash")
	w.fails(2, "table", "rss", "set", "--table", "equal 99")
	found := parse[[]crafted](w, "rss", "craft", "--worker", "0", "--count", "3", "--live", "tcp", "10.0.0.1", "10.0.0.2:80")
	for _, f := range found {
		x := parse[explained](w, append([]string{"rss", "explain", "--live"}, strings.Fields(f.Tuple)...)...)
		if x.Worker != 0 || x.Hash != f.Hash || x.Bucket != f.Bucket {
			t.Errorf("%+v, explained as %+v", f, x)
		}
	}
	if len(found) != 3 {
		t.Errorf("%+v", found)
	}
	w.must([]string{"icmp 10.0.0"}, "rss", "craft", "--worker", "1", "--workers", "2", "icmp", "10.0.0.1", "10.0.0.2")
	w.fails(2, "--count", "rss", "craft", "--worker", "0", "--workers", "2", "--count", "100000000")
	w.fails(1, "owns no bucket", "rss", "craft", "--worker", "1", "--workers", "2", "--table", "equal 1")
	w.fails(2, "--worker", "rss", "craft", "--worker", "9", "--workers", "2")
	w.must([]string{"too few"}, "rss", "rebalance", "--dry-run")
	w.must(nil, "set", "web", "mode=inline") // in mode pool, the neighbours' discovery is measured
	w.fails(1, "no frame", "rss", "what-if", "--measured", "--table", "equal 1")
}
