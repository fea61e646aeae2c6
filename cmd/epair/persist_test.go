package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/internal/netns"
)

// persistFile writes a configuration of persistent pairs, one per cell, and returns their names. Pair i has addresses 10.77.i.1 and .2.
func persistFile(t *testing.T, cells ...string) (path string, names []string) {
	t.Helper()
	text := "version: epair/v1\npairs:\n"
	for i, cell := range cells {
		datapath, mode, _ := strings.Cut(cell, "/")
		name := fmt.Sprintf("persist-%d-%s-%s", os.Getpid(), datapath, mode)
		names = append(names, name)
		text += fmt.Sprintf("  - {name: %s, datapath: %s, mode: %s, persist: true", name, datapath, mode)
		for j, side := range []string{"a", "b"} {
			text += fmt.Sprintf(", %s: {kind: veth, name: e%d, netns: %s, addresses: [10.77.%d.%d/24]}", side, i, persistSpace(side), i, j+1)
		}
		text += "}\n"
	}
	path = filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := command(context.Background(), "", "gc", "--all").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return path, names
}

func persistSpace(side string) string { return fmt.Sprintf("epair-persist-%d-%s", os.Getpid(), side) }

// persistLeft lists what there is of persistent pairs of these names, by their records.
func persistLeft(t *testing.T, names []string) (left []string) {
	t.Helper()
	for _, n := range names {
		files, _ := filepath.Glob("/run/epair/*." + n + ".json*")
		for _, f := range files {
			id := filepath.Base(f)[:36]
			left = append(left, f)
			for _, p := range []string{"/run/epair/" + id + ".lock", netns.RunDir + "/epair-" + id, "/sys/fs/bpf/epair/" + id} {
				if _, err := os.Stat(p); err == nil {
					left = append(left, p)
				}
			}
		}
	}
	for _, side := range []string{"a", "b"} {
		if _, err := os.Stat(filepath.Join(netns.RunDir, persistSpace(side))); err == nil {
			left = append(left, persistSpace(side))
		}
	}
	return left
}

// stream sends numbered datagrams from side a of pair i to side b, some 500 a second, until the result is called, which returns when all have
// come: at least one, in order. Of those that haven't, the pair's ledger must say that a queue was full: the thread of a NAPI gets its CPU
// late on a busy machine.
func stream(t *testing.T, i int) (stop func(w *world, name string)) {
	t.Helper()
	open := func(side, addr string) (c *net.UDPConn) {
		ns, err := netns.Open(persistSpace(side))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		err = ns.Do(func() error {
			a, err := net.ResolveUDPAddr("udp4", addr)
			if err == nil {
				c, err = net.ListenUDP("udp4", a)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	from, to := open("a", fmt.Sprintf("10.77.%d.1:4000", i)), open("b", fmt.Sprintf("10.77.%d.2:4000", i))
	if err := to.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	end, sent, got := make(chan struct{}), make(chan uint64), make(chan [2]string)
	go func() { sent <- send(from, to.LocalAddr(), i, end) }()
	var came atomic.Uint64
	go func() { got <- receive(to, &came) }()
	full := func(w *world, name string) uint64 {
		return parse[control.Pair](w, "show", name).AB.Drops["backlog"]
	}
	return func(w *world, name string) {
		t.Helper()
		close(end)
		n := <-sent
		for late := time.Now().Add(10 * time.Second); came.Load()+full(w, name) < n && time.Now().Before(late); {
			time.Sleep(time.Millisecond)
		}
		to.SetReadDeadline(time.Now())
		said := <-got
		from.Close()
		to.Close()
		if lost := n - came.Load(); said[0] != "" || lost > full(w, name) {
			t.Errorf("%s: of %d frames %d are lost, of which it names %d: %v", name, n, lost, full(w, name), said)
		}
	}
}

// send sends from one CPU: a flow that migrates has no order on a veth.
func send(c *net.UDPConn, to net.Addr, cpu int, end chan struct{}) (n uint64) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	_ = unix.SchedSetaffinity(0, &set) // the thread ends with the goroutine, being locked
	for {
		if _, err := c.WriteTo(binary.BigEndian.AppendUint64(nil, n), to); err == nil {
			n++
		}
		select {
		case <-end:
			return n
		default:
		}
		time.Sleep(2 * time.Millisecond) // so few that a thread of a busy machine has its ring empty in time
	}
}

// receive counts what comes in order, and says what is wrong, and what is missing, when the deadline has come.
func receive(c *net.UDPConn, came *atomic.Uint64) (said [2]string) {
	buf := make([]byte, 64)
	for next := uint64(0); ; came.Add(1) {
		n, err := c.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return said
		}
		if err != nil || n != 8 {
			said[0] = fmt.Sprintf("%d bytes, %v", n, err)
			return said
		}
		got := binary.BigEndian.Uint64(buf)
		if got < next {
			said[0] = fmt.Sprintf("number %d came behind %d", got, next-1)
			return said
		}
		if got > next {
			said[1] += fmt.Sprintf("%d to %d didn't come; ", next, got-1)
		}
		next = got + 1
	}
}

// When the daemon is killed, frames of persistent pairs go on, and so they do while the next one takes over. Counters
// go on, modes change, and deletion leaves nothing.
func TestPersistKill(t *testing.T) {
	needRoot(t)
	cells := []string{"direct/inline", "direct/pool", "direct/poller", "tc/inline", "tc/pool", "tc/poller"}
	file, names := persistFile(t, cells...)
	w := startDaemon(t, "-f", file)
	var stops []func(*world, string)
	for i := range cells {
		stops = append(stops, stream(t, i))
	}
	time.Sleep(300 * time.Millisecond)
	before := parse[control.Stat](w, "stat")
	w.kill()
	time.Sleep(300 * time.Millisecond)
	start := time.Now()
	w = startDaemon(t, "-f", file)
	t.Logf("up again after %v", time.Since(start))
	after := parse[control.Stat](w, "stat")
	for i, stop := range stops {
		stop(w, names[i])
	}
	for i, name := range names {
		p := parse[control.Pair](w, "show", name)
		if why := strings.Join(p.Why, "; "); !p.Persist || !strings.Contains(why, "adopted") || p.Datapath+"/"+p.Mode != cells[i] {
			t.Errorf("%s: %s/%s %s", cells[i], p.Datapath, p.Mode, why)
		}
		was, is := before.Pairs[i].AB, after.Pairs[i].AB
		if is.Rx < was.Rx+10 || is.Tx < was.Tx+10 || is.RxBytes <= was.RxBytes {
			t.Errorf("%s: counters went from %+v to %+v, with 10 frames and more in between", cells[i], was, is)
		}
		for _, mode := range []string{"poller", "pool"} {
			w.must(nil, "set", name, "mode="+mode)
		}
	}
	w.must([]string{"every ledger balances"}, "audit")
	w.must(nil, append([]string{"del"}, names...)...)
	if left := persistLeft(t, names); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A daemon that ends leaves persistent pairs; gc lists them, and removes them when it's told to.
func TestPersistGC(t *testing.T) {
	needRoot(t)
	file, names := persistFile(t, "direct/pool", "tc/inline")
	w := startDaemon(t, "-f", file)
	w.fails(1, "persistent", "set", names[1], "datapath=user")
	w.fails(2, "pass through the process", "add", "x", "--persist", "--datapath", "user", "--a", end("e0", "a"), "--b", end("e0", "b"))
	w.fails(1, "persist", "add", "x", "--persist", "--datapath", "xdp", "--a", end("e0", "a"), "--b", end("e0", "b"))
	stop := stream(t, 1)
	w.stop()
	w.killed = true
	for range 2 {
		out := w.must([]string{"kept pair " + names[0] + " (direct", "kept pair " + names[1] + " (tc"}, "gc")
		if strings.Contains(out, persistSpace("a")+"\n") {
			t.Errorf("a namespace with kept pairs is garbage: %s", out)
		}
	}
	w = startDaemon(t, "-f", file)
	stop(w, names[1])
	w.stop()
	w.killed = true
	// Another daemon leaves them alone, whatever its pairs are called, and doesn't take their interfaces.
	other := startDaemon(t)
	if said := other.said.String(); !strings.Contains(said, "pair "+names[0]+" (direct") {
		t.Errorf("no word of kept pairs: %s", said)
	}
	other.must(nil, "add", names[0], "--persist", "--a", end("e0", "a"), "--b", end("e0", "b"))
	other.fails(1, "persistent pair "+names[0], "add", "y", "--a", "veth:e0@"+persistSpace("a"), "--b", end("e1", "b"))
	other.must([]string{"kept pair " + names[0] + " (direct"}, "gc")
	other.must(nil, "del", names[0])
	other.stop()
	other.killed = true
	w.must([]string{"would remove namespace " + persistSpace("a"), "would remove record and pins of pair " + names[0]}, "gc", "--all", "--dry-run")
	if left := persistLeft(t, names); len(left) < 8 {
		t.Errorf("a dry run removed something: %q", left)
	}
	ids := persistLeft(t, names)
	w.must([]string{"removed namespace " + persistSpace("a")}, "gc", "--all")
	for _, path := range ids {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("left: %s", path)
		}
	}
}

// What isn't whole, or isn't what is configured now, is made anew, and never in the way.
func TestPersistTorn(t *testing.T) {
	needRoot(t)
	file, names := persistFile(t, "direct/pool", "tc/pool")
	records := func() (all []string) {
		for _, n := range names {
			files, _ := filepath.Glob("/run/epair/*." + n + ".json")
			all = append(all, files...)
		}
		return all
	}
	for _, c := range []struct {
		what, why string
		gc        bool // before the start
		tear      func()
	}{
		{"pins are gone", "laid anew", true, func() {
			for _, r := range records() {
				pins, _ := filepath.Glob("/sys/fs/bpf/epair/" + filepath.Base(r)[:36] + "/link-*")
				for _, p := range pins {
					os.Remove(p)
				}
			}
		}},
		{"records are half", "re-created", false, func() {
			for _, r := range records() {
				data, _ := os.ReadFile(r)
				os.WriteFile(r, data[:len(data)/2], 0o600)
			}
		}},
		{"records are half, and collected", "", true, func() {
			for _, r := range records() {
				os.WriteFile(r, nil, 0o600)
			}
		}},
		{"a mode was being changed", "laid anew", true, func() {
			for _, r := range records() {
				data, _ := os.ReadFile(r)
				os.WriteFile(r, []byte(strings.Replace(string(data), `"mode": "pool"`, `"changing": true, "mode": "pool"`, 2)), 0o600)
			}
		}},
		{"maps are of another layout", "laid anew", true, func() {
			for _, r := range records() {
				data, _ := os.ReadFile(r)
				os.WriteFile(r, []byte(strings.Replace(string(data), `"layout": 1`, `"layout": 99`, 1)), 0o600)
			}
		}},
		{"the mtu is another", "mtu is another", true, func() {
			data, _ := os.ReadFile(file)
			os.WriteFile(file, []byte(strings.ReplaceAll(string(data), "persist: true", "persist: true, mtu: 1400")), 0o600)
		}},
		{"it isn't to be persistent", "isn't to be any more", true, func() {
			data, _ := os.ReadFile(file)
			os.WriteFile(file, []byte(strings.ReplaceAll(string(data), "persist: true, ", "")), 0o600)
		}},
		{"it is to be persistent again", "", true, func() {
			data, _ := os.ReadFile(file)
			os.WriteFile(file, []byte(strings.ReplaceAll(string(data), "mtu:", "persist: true, mtu:")), 0o600)
		}},
		{"a namespace is gone", "", true, func() { netns.Delete(persistSpace("b")) }},
	} {
		w := startDaemon(t, "-f", file)
		w.stop()
		w.killed = true
		c.tear()
		if c.gc {
			w.must(nil, "gc")
		}
		w = startDaemon(t, "-f", file)
		for i, name := range names {
			p := parse[control.Pair](w, "show", name)
			if said := fmt.Sprint(p.Why, p.Notes); p.State != "up" || !strings.Contains(said, c.why) {
				t.Errorf("%s: %s is %s: %s", c.what, name, p.State, said)
			}
			stop := stream(t, i)
			time.Sleep(20 * time.Millisecond)
			stop(w, name)
		}
		w.must([]string{"every ledger balances"}, "audit")
		if r := records(); c.why != "isn't to be any more" && len(r) != len(names) {
			t.Errorf("%s: records %q", c.what, r)
		}
		w.stop()
		w.killed = true
	}
}

// Killed at any moment of a start or of a deletion, nothing is left that the next start and gc don't see to.
func TestPersistKillAtAnyMoment(t *testing.T) {
	needRoot(t)
	file, names := persistFile(t, "direct/pool", "tc/poller")
	socket := filepath.Join(t.TempDir(), "s")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		cmd := command(t.Context(), socket, "run", "-f", file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(10+dice.IntN(200)) * time.Millisecond)
		if dice.IntN(3) == 0 {
			del := command(t.Context(), socket, append([]string{"del"}, names...)...)
			if err := del.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(10+dice.IntN(60)) * time.Millisecond)
			defer del.Wait()
		}
		cmd.Process.Kill()
		cmd.Wait()
		if dice.IntN(4) == 0 {
			(&world{t: t}).must(nil, "gc")
		}
	}
	w := startDaemon(t, "-f", file)
	for i, name := range names {
		if p := parse[control.Pair](w, "show", name); p.State != "up" {
			t.Errorf("%s is %s", name, p.State)
		}
		stop := stream(t, i)
		time.Sleep(50 * time.Millisecond)
		stop(w, name)
	}
	w.must([]string{"every ledger balances"}, "audit")
	if left := persistLeft(t, names); len(slices.DeleteFunc(left, func(s string) bool { return !strings.HasSuffix(s, ".json") })) != len(names) {
		t.Errorf("records: %q", left)
	}
	w.must(nil, append([]string{"del"}, names...)...)
	if left := persistLeft(t, names); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if out := w.must(nil, "gc", "--dry-run"); strings.Contains(out, "persist-"+fmt.Sprint(os.Getpid())) {
		t.Errorf("left: %s", out)
	}
}
