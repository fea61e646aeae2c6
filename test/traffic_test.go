package test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

//	namespace A               epair                namespace B
//	sockets ── end a ── port ─ worker ─ port ── end b ── sockets

// needRoot skips without root, and fails where nothing may be skipped.
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

func nsName(side string) string { return fmt.Sprintf("epair-test-%d-%s", os.Getpid(), side) }

// cell is one way to carry a pair: how is the datapath, or its port in the user datapath.
type cell struct{ a, b, how, mode string }

func (c cell) String() string { return fmt.Sprintf("%s-%s-%s/%s", c.a, c.b, c.how, c.mode) }

// datapath returns the datapath and the port that c.how stands for.
func (c cell) datapath() (datapath, port string) {
	switch c.how {
	case "packet":
		return "user", "packet"
	case "af_xdp":
		return "user", "xdp"
	}
	return c.how, "packet"
}

func cells() []cell {
	var all []cell
	for _, mode := range []string{"inline", "pool", "poller"} {
		all = append(all,
			cell{epair.Veth, epair.Veth, "packet", mode}, cell{epair.Veth, epair.Veth, "af_xdp", mode},
			cell{epair.TAP, epair.TAP, "packet", mode}, cell{epair.Veth, epair.TAP, "packet", mode},
			cell{epair.Veth, epair.Veth, "direct", mode}, cell{epair.Veth, epair.Veth, "tc", mode},
			cell{epair.Veth, epair.Veth, "xdp", mode})
	}
	return all
}

func (c cell) config(cpus string) *epair.Config {
	end := func(kind, side string, host int) epair.EndConfig {
		return epair.EndConfig{Kind: kind, Name: "e0", Netns: nsName(side),
			Addresses: []string{fmt.Sprintf("10.66.0.%d/24", host), fmt.Sprintf("fd66::%d/64", host)}}
	}
	p := epair.PairConfig{Name: "p", A: end(c.a, "a", 1), B: end(c.b, "b", 2), Mode: c.mode}
	p.Datapath, p.Port = c.datapath()
	return &epair.Config{Version: epair.Version, Pool: epair.PoolConfig{CPUs: cpus}, Pairs: []epair.PairConfig{p.WithDefaults()}}
}

// start runs a daemon for cfg and checks at the end that its ledgers balance and nothing is left.
func start(t *testing.T, cfg *epair.Config) *control.Daemon {
	t.Helper()
	d, err := control.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if a := d.Audit(); len(a.Findings) > 0 {
			t.Errorf("audit: %+v", a.Findings)
		}
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, side := range []string{"a", "b"} {
			if _, err := os.Stat(filepath.Join("/run/netns", nsName(side))); err == nil {
				t.Errorf("namespace %s is left behind", nsName(side))
			}
		}
	})
	return d
}

// inNS runs f in one of the test's namespaces.
func inNS(t *testing.T, side string, f func() error) {
	t.Helper()
	ns, err := netns.Open(nsName(side))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// TCP bulk in both directions at once, whole, with all offloads on, by IPv4 and IPv6; UDP
// echoes up to the size at which IP fragments them.
func TestSockets(t *testing.T) {
	needRoot(t)
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			d := start(t, c.config(""))
			for _, to := range []string{"10.66.0.2", "fd66::2"} {
				bulk(t, to)
			}
			udpEcho(t, "10.66.0.2")
			for _, p := range d.Pairs() {
				if p.State != "up" || p.AB.Rx == 0 || p.BA.Rx == 0 {
					t.Errorf("pair after traffic: state %s, rx %d and %d", p.State, p.AB.Rx, p.BA.Rx)
				}
			}
		})
	}
}

// bulk exchanges 8 MiB in each direction over one connection and compares digests.
func bulk(t *testing.T, to string) {
	t.Helper()
	const size = 8 << 20
	addr := netip.AddrPortFrom(netip.MustParseAddr(to), 0).String()
	var ln net.Listener
	inNS(t, "b", func() (err error) { ln, err = net.Listen("tcp", addr); return err })
	defer ln.Close()
	digests := make(chan [32]byte, 4) // each side's sent and received
	talk := func(c net.Conn, seed byte) {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a late test ends in unequal digests
		sent := make(chan [32]byte)
		go func() {
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(i*7>>3) ^ seed
			}
			_, _ = c.Write(b)
			_ = c.(*net.TCPConn).CloseWrite()
			sent <- sha256.Sum256(b)
		}()
		h := sha256.New()
		_, _ = io.Copy(h, c)
		digests <- <-sent
		digests <- [32]byte(h.Sum(nil))
	}
	go func() {
		if c, err := ln.Accept(); err == nil {
			talk(c, 1)
		}
	}()
	var c net.Conn
	inNS(t, "a", func() (err error) {
		c, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
		return err
	})
	go talk(c, 2)
	count := map[[32]byte]int{}
	for range 4 {
		select {
		case d := <-digests:
			count[d]++
		case <-time.After(30 * time.Second):
			t.Fatal("tcp stalls")
		}
	}
	if len(count) != 2 {
		t.Errorf("tcp to %s: payload arrived changed", to)
	}
}

func udpEcho(t *testing.T, to string) {
	t.Helper()
	var b net.PacketConn
	inNS(t, "b", func() (err error) { b, err = net.ListenPacket("udp", to+":0"); return err })
	defer b.Close()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := b.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = b.WriteTo(buf[:n], from)
		}
	}()
	var a net.Conn
	inNS(t, "a", func() (err error) { a, err = net.Dial("udp", b.LocalAddr().String()); return err })
	defer a.Close()
	for _, n := range []int{0, 1, 18, 1472, 1473, 4000, 8000} {
		out, in := make([]byte, n), make([]byte, 1<<16)
		for i := range out {
			out[i] = byte(i ^ n)
		}
		if _, err := a.Write(out); err != nil {
			t.Fatal(err)
		}
		_ = a.SetReadDeadline(time.Now().Add(5 * time.Second))
		got, err := a.Read(in)
		if err != nil || string(in[:got]) != string(out) {
			t.Errorf("udp echo of %d bytes: %d came back, %v", n, got, err)
		}
	}
}

// stay keeps the rest of the test on one CPU. A veth queues frames per CPU in front of epair, so those of a
// sender that moves may be out of order before epair has them.
func stay(t *testing.T) {
	t.Helper()
	allowed, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the thread ends with the test
	var one unix.CPUSet
	one.Set(allowed[0])
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// A burst with nothing behind it arrives whole and in order: no frame waits for the next one.
func TestBurstThenSilence(t *testing.T) {
	needRoot(t)
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			start(t, c.config(""))
			var a, b *net.UDPConn
			inNS(t, "b", func() (err error) {
				b, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.66.0.2:0")))
				return err
			})
			defer b.Close()
			inNS(t, "a", func() (err error) { a, err = net.DialUDP("udp", nil, b.LocalAddr().(*net.UDPAddr)); return err })
			defer a.Close()
			stay(t)
			buf := make([]byte, 64)
			for burst := range 300 {
				n := 1 + burst*7%64
				for i := range n {
					if _, err := a.Write([]byte{byte(burst), byte(i)}); err != nil {
						t.Fatal(err)
					}
				}
				_ = b.SetReadDeadline(time.Now().Add(2 * time.Second))
				for i := range n {
					if _, err := b.Read(buf); err != nil {
						t.Fatalf("burst %d: %d of %d arrived: %v", burst, i, n, err)
					}
					if buf[0] != byte(burst) || buf[1] != byte(i) {
						t.Fatalf("burst %d: datagram %d is %d of burst %d", burst, i, buf[1], buf[0])
					}
				}
			}
		})
	}
}

// build makes the command once per test.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "epair")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/epair").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return bin
}

const lab = `version: epair/v1
pairs:
  - name: p
    a: {kind: veth, name: e0, netns: %s, addresses: [10.66.0.1/24]}
    b: {kind: tap, name: e0, netns: %s, addresses: [10.66.0.2/24]}
`

// A daemon that is killed leaves what its successor takes over; one that is asked to
// stop leaves nothing. Between the two, every query answers as documented.
func TestKillStartStop(t *testing.T) {
	needRoot(t)
	bin, dir := build(t), t.TempDir()
	file, sock := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, lab, nsName("a"), nsName("b")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM} {
		cmd := exec.Command(bin, "run", "-f", file, "--socket", sock)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitServing(t, sock, &stderr)
		udpEcho(t, "10.66.0.2")
		query(t, bin, sock)
		if err := cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); end == syscall.SIGTERM && err != nil {
			t.Errorf("stopped: %v: %s", err, stderr.String())
		}
	}
	for _, side := range []string{"a", "b"} {
		if _, err := os.Stat(filepath.Join("/run/netns", nsName(side))); err == nil {
			t.Errorf("namespace %s is left behind", nsName(side))
		}
	}
	if _, err := os.Stat(sock); err == nil {
		t.Error("the socket is left behind")
	}
}

func waitServing(t *testing.T, sock string, stderr *strings.Builder) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := control.NewClient(sock).Version(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("daemon doesn't answer: %s", stderr.String())
}

func query(t *testing.T, bin, sock string) {
	t.Helper()
	for _, q := range []struct {
		args string
		keys []string
	}{
		{"stat --json", []string{`"pairs"`, `"name"`, `"state"`, `"datapath"`, `"mode"`, `"ab"`, `"ba"`, `"rx"`, `"tx"`, `"queued"`, `"drops"`, `"workers"`, `"id"`, `"cpu"`, `"tid"`}},
		{"show p --json", []string{`"a"`, `"b"`, `"state": "up"`}},
		{"list --json", []string{`"pairs"`}},
		{"audit --json", []string{`"findings": []`}},
	} {
		out, err := exec.Command(bin, append(strings.Fields(q.args), "--socket", sock)...).Output()
		if err != nil || !json.Valid(out) {
			t.Errorf("%s: %v: %s", q.args, err, out)
		}
		for _, k := range q.keys {
			if !strings.Contains(string(out), k) {
				t.Errorf("%s: no %s in %s", q.args, k, out)
			}
		}
	}
}

// Each mistake gets one line that names its object, and nothing is made.
func TestBadInput(t *testing.T) {
	needRoot(t)
	bin, dir := build(t), t.TempDir()
	pair := func(a, b, rest string) string {
		return fmt.Sprintf("version: epair/v1\npairs:\n  - {name: p, a: {kind: veth, name: %s, netns: %s}, b: {kind: veth, name: %s, netns: %s}%s}\n",
			a, nsName("a"), b, nsName("b"), rest)
	}
	for _, c := range []struct {
		text   string
		status int
		want   string
	}{
		{strings.Replace(pair("e0", "e0", ""), "netns", "nets", 1), 2, "nets"},
		{pair("e0", "e0", ", mtu: many"), 2, "mtu"},
		{pair("a-name-that-is-too-long", "e0", ""), 2, "a-name-that-is-too-long"},
		{pair("e0", "e0", ", mode: fast"), 2, "fast"},
		{strings.Replace(pair("e0", "e0", ", datapath: tc"), "kind: veth", "kind: tap", 1), 2, "tap"},
		{pair("e0", "e0", "") + strings.Split(pair("e1", "e1", ""), "pairs:\n")[1], 2, `"p"`},
		{"pool: {cpus: \"0-1023\"}\n" + pair("e0", "e0", ""), 2, "cpu"},
		{"rss: {func: md5}\n" + pair("e0", "e0", ""), 2, "md5"},
		{pair("lo", "e0", ""), 1, "lo"},
		{strings.Replace(pair("nix0", "e0", ""), "kind: veth", "kind: dev", 1), 1, "nix0"},
	} {
		file := filepath.Join(dir, "bad.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		cmd := exec.CommandContext(ctx, bin, "run", "-f", file, "--socket", filepath.Join(dir, "sock"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		_ = cmd.Run() // its status is what counts
		cancel()
		got := strings.TrimSpace(stderr.String())
		if s := cmd.ProcessState.ExitCode(); s != c.status || strings.Contains(got, "\n") || !strings.Contains(got, c.want) {
			t.Errorf("status %d, want %d with one line naming %s:\n%s\n%s", s, c.status, c.want, c.text, got)
		}
		for _, side := range []string{"a", "b"} {
			if _, err := os.Stat(filepath.Join("/run/netns", nsName(side))); err == nil {
				t.Errorf("namespace %s is left behind by\n%s", nsName(side), c.text)
			}
		}
	}
}
