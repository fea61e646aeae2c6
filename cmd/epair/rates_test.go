package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/rss"
)

func TestSI(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.5: "0.50", 9.99: "9.99", 9.999: "10.0", 12.34: "12.3", 99.96: "100", 123.4: "123", 999.4: "999", 999.6: "1.00k",
		1234: "1.23k", 56789: "56.8k", 1.5e6: "1.50M", 2e9: "2G", 3e12: "3T",
	} {
		if got := si(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

func TestBetween(t *testing.T) {
	at := time.Unix(1000, 0)
	stat := func(rx uint64, cpu uint64) control.Stat {
		return control.Stat{
			Pairs:   []control.Pair{{Name: "p", AB: control.Direction{Rx: rx, TxBytes: 10 * rx, Drops: map[string]uint64{"x": rx / 2}}}},
			Workers: []control.Worker{{Name: "w", TID: 7, CPUNanos: cpu}},
		}
	}
	r := between(sample{stat(100, 1e9), at}, sample{stat(300, 2e9), at.Add(2 * time.Second)})
	if p := r.Pairs[0].AB; p.Rx != 100 || p.TxBits != 8000 || p.Drops != 50 || r.Workers[0].Busy != 0.5 || r.Interval != 2 {
		t.Errorf("%+v", r)
	}
	// Another pair has the name now: it counts from 0.
	r = between(sample{stat(300, 2e9), at}, sample{stat(50, 0), at.Add(time.Second)})
	if p := r.Pairs[0].AB; p.Rx != 50 || r.Workers[0].Busy != 0 {
		t.Errorf("%+v", r)
	}
	if r = between(sample{stat(1, 1), at}, sample{stat(1, 1), at}); r.Pairs[0].AB.Rx != 0 {
		t.Errorf("without time: %+v", r)
	}
}

// model is a screen with n pairs and workers.
func model(n, workers int) *topModel {
	m := &topModel{ctx: context.Background(), width: 80, height: 24}
	for i := range n {
		m.rates.Pairs = append(m.rates.Pairs, pairRate{
			Name: fmt.Sprintf("a-pair-with-a-long-name-%d", i), State: "up", Datapath: "direct", Mode: "poller",
			AB: dirRate{Tx: 1234567, TxBits: 9.87e9, Drops: 99999, Queued: 12345}, BA: dirRate{Tx: 1.5},
		})
	}
	for i := range workers {
		m.rates.Workers = append(m.rates.Workers, workerRate{Name: fmt.Sprintf("epair/w%d", i), CPU: i, Busy: 1, Turns: 1e6})
	}
	return m
}

var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

// The screen fits the terminal, whatever its size and whatever there is to show.
func TestTopFits(t *testing.T) {
	for _, size := range []struct{ w, h, pairs, workers int }{
		{80, 24, 3, 2}, {80, 24, 500, 2}, {80, 24, 0, 2}, {80, 24, 5, 64}, {200, 60, 40, 8}, {40, 12, 9, 3},
	} {
		m := model(size.pairs, size.workers)
		m.width, m.height = size.w, size.h
		lines := m.view()
		if len(lines) > size.h {
			t.Errorf("%+v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(ansi.ReplaceAllString(l, "")); n > size.w {
				t.Errorf("%+v: %d columns: %q", size, n, l)
			}
		}
		text := strings.Join(lines, "\n")
		for _, want := range []string{"MODE", "DROP/s", "QUEUED", "BUSY", "q quit"} {
			if size.w >= 80 && !strings.Contains(text, want) {
				t.Errorf("%+v: no %s in\n%s", size, want, text)
			}
		}
	}
}

func screenOf(m *topModel) string { return strings.Join(m.view(), "\n") }

func TestTopKeys(t *testing.T) {
	m := model(100, 2)
	m.key("down")
	m.key("j")
	if m.index() != 2 {
		t.Errorf("two down: %d", m.index())
	}
	m.key("end")
	if m.index() != 99 || !strings.Contains(screenOf(m), "\x1b[7m "+clip(m.rates.Pairs[99].Name, 15)) {
		t.Errorf("end: %d\n%s", m.index(), screenOf(m))
	}
	// The chosen pair stays chosen when others go.
	m.rates.Pairs = m.rates.Pairs[50:]
	if m.index() != 49 {
		t.Errorf("after others are gone: %d", m.index())
	}
	m.key("home")
	if m.index() != 0 {
		t.Errorf("home: %d", m.index())
	}
	m.key("pgdown")
	if n := m.index(); n < 5 || n > 24 {
		t.Errorf("a page down: %d", n)
	}
}

func TestSplitKeys(t *testing.T) {
	got := splitKeys("q\x1b[A\x1b[5~i\x1bOBxx\x1b")
	if want := []string{"q", "up", "pgup", "i", "down", "x", "x", "esc"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Keys change the mode of the pair that is chosen.
func TestTopSetsMode(t *testing.T) {
	w := startDaemon(t)
	w.must(nil, "add", "web", "--a", end("e0", "a"), "--b", end("e0", "b"), "--datapath", "user")
	e := &env{socket: w.socket}
	c := e.client()
	defer c.Close()
	m := &topModel{ctx: t.Context(), ask: c, env: e, width: 80, height: 24}
	m.look()(m)
	m.key("i")()(m)
	if !strings.Contains(screenOf(m), "web is in mode inline") {
		t.Errorf("%s", screenOf(m))
	}
	if p := parse[control.Pair](w, "show", "web"); p.Mode != "inline" {
		t.Errorf("%+v", p)
	}
	w.must(nil, "del", "web")
	m.key("p")()(m)
	if !strings.Contains(screenOf(m), "no such pair") {
		t.Errorf("an error isn't shown:\n%s", screenOf(m))
	}
}

// top takes a terminal, shows what is there, and gives it back as it was.
func TestTopOnTerminal(t *testing.T) {
	w := startDaemon(t)
	w.must(nil, "add", "web", "--a", end("e0", "a"), "--b", end("e0", "b"), "--datapath", "user")
	far, near := openPTY(t)
	before, err := unix.IoctlGetTermios(int(near.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t.Context(), w.socket, "top", "--interval", "20ms")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = near, near, near
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	until := func(want string) {
		b := make([]byte, 4096)
		for !strings.Contains(shown.String(), want) {
			if err := far.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := far.Read(b)
			if err != nil {
				t.Fatalf("no %q: %v in %q", want, err, shown.String())
			}
			shown.Write(b[:n])
		}
	}
	until("user/pool")
	if _, err := far.WriteString("i"); err != nil {
		t.Fatal(err)
	}
	until("web is in mode inline")
	if _, err := far.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	until(leaveScreen)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	after, err := unix.IoctlGetTermios(int(near.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal isn't as it was: %v", err)
	}
}

// openPTY returns both sides of a new terminal of 80 by 24.
func openPTY(t *testing.T) (far, near *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	far = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { far.Close() })
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 80, Row: 24})
	}
	if err != nil {
		t.Fatal(err)
	}
	if near, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return far, near
}

func TestPredict(t *testing.T) {
	h, err := rss.New(rss.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tab, err := rss.ParseTable("equal 1", 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	p, err := predict(strings.NewReader("# flows\nudp 10.0.0.1:1 10.0.0.2:2 3\n\n[2001:db8::1]:1,[2001:db8::2]:2,tcp\n"), h, tab)
	if err != nil || p.Flows != 2 || p.Load != 4 || p.Uneven != 2 || p.Workers[0].Share != 1 || p.Workers[1].Flows != 0 {
		t.Errorf("%v %+v", err, p)
	}
	for _, bad := range []string{"", "udp", "udp 10.0.0.1:1 10.0.0.2:2 -1", "udp 10.0.0.1:1 10.0.0.2:2 NaN", "udp 10.0.0.1:1 ::1:2"} {
		if p, err := predict(strings.NewReader(bad), h, tab); err == nil {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}
