package test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/ethtool"
)

//	namespace a                              pair: tc, xdp or user                       namespace b
//	a pinned sender, 64 flows numbered ── e0 ─ what carries it is exchanged all the time ─ e0 ── numbers rise

// numbers is frames that were sent, and what came of them.
type numbers struct {
	sent, came, reordered, doubled int
	gaps                           int           // times a flow's numbers went on later
	silent                         time.Duration // the longest time without a frame
}

// sender sends numbered frames of all flows in turn, at a rate, from one CPU, past no hook or past all of them.
type sender struct {
	fd   int
	to   unix.SockaddrLinklayer
	sent [orderFlows]uint32
}

func newSender(t *testing.T, side string, bypass bool) *sender {
	t.Helper()
	s := &sender{}
	inNS(t, side, func() (err error) {
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		l, err := netlink.LinkByName("e0")
		if err != nil {
			return err
		}
		s.to = unix.SockaddrLinklayer{Ifindex: l.Attrs().Index}
		if bypass {
			err = errors.Join(err, unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
		}
		return err
	})
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

// run sends until stop, tick frames each millisecond.
func (s *sender) run(cpu, tick int, stop <-chan struct{}) error {
	runtime.LockOSThread() // and the thread ends with it
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	f := orderFrame()
	for flow := 0; ; {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
		for range tick {
			flow = (flow + 1) % orderFlows
			number(f, flow, s.sent[flow])
			if err := unix.Sendto(s.fd, f, 0, &s.to); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("send: %w", err)
			}
			s.sent[flow]++
		}
	}
}

func (s *sender) total() (n int) {
	for _, k := range s.sent {
		n += int(k)
	}
	return n
}

// follow checks what comes until it ends and nothing came for a while.
func follow(far *porttest.PacketFar, ended *atomic.Bool) (n numbers, err error) {
	var last [orderFlows]int
	for i := range last {
		last[i] = -1
	}
	for before := time.Now(); ; {
		_, f, err := far.Recv(200 * time.Millisecond)
		if err != nil {
			return n, err
		}
		if f == nil && ended.Load() {
			return n, nil
		}
		if len(f) < orderMark+8 || f[0] != 2 || f[5] != 0x77 {
			continue
		}
		now := time.Now()
		n.silent, before = max(n.silent, now.Sub(before)), now
		flow, k := binary.BigEndian.Uint32(f[orderMark:]), int(binary.BigEndian.Uint32(f[orderMark+4:]))
		n.came++
		switch {
		case k == last[flow]:
			n.doubled++
		case k < last[flow]:
			n.reordered++
		case k > last[flow]+1:
			n.gaps++
		}
		last[flow] = max(last[flow], k)
	}
}

// quiet makes an end's stack send nothing by itself.
func quiet(t *testing.T, side string) {
	t.Helper()
	inNS(t, side, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/e0/disable_ipv6", []byte("1"), 0) })
}

// monotonic watches that a pair's ledgers balance and never go back, until the returned function is called.
func monotonic(t *testing.T, d *control.Daemon) (stop func()) {
	t.Helper()
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		var last control.Pair
		for n := 0; !end.Load(); n++ {
			p, ok := d.Pair("p")
			if !ok {
				done <- errors.New("the pair is gone")
				return
			}
			if err := goesOn(&last, &p); err != nil && n > 0 {
				done <- err
				return
			}
			last = p
			time.Sleep(2 * time.Millisecond)
		}
		done <- nil
	}()
	return func() {
		end.Store(true)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func goesOn(last, now *control.Pair) error {
	for i, x := range [][2]*control.Direction{{&last.AB, &now.AB}, {&last.BA, &now.BA}} {
		a, b := x[0], x[1]
		if b.Imbalance != 0 {
			return fmt.Errorf("way %d: off by %d: %+v", i, b.Imbalance, b)
		}
		if b.Rx < a.Rx || b.Tx < a.Tx || b.RxBytes < a.RxBytes || b.TxBytes < a.TxBytes {
			return fmt.Errorf("way %d of %s/%s: counters went back: %+v after %+v", i, now.Datapath, now.Mode, b, a)
		}
		for reason, n := range a.Drops {
			if b.Drops[reason] < n {
				return fmt.Errorf("way %d of %s/%s: drops %s went from %d to %d", i, now.Datapath, now.Mode, reason, n, b.Drops[reason])
			}
		}
		for k, s := range a.Workers {
			if k >= len(b.Workers) || b.Workers[k].Rx < s.Rx || b.Workers[k].Tx < s.Tx {
				return fmt.Errorf("way %d of %s/%s: worker %d went back: %+v after %+v", i, now.Datapath, now.Mode, k, b.Workers, s)
			}
		}
	}
	return nil
}

// way is a cell that a stitched pair can be in.
type way struct{ datapath, mode string }

func (w way) String() string { return w.datapath + "/" + w.mode }

func ways() (all []way) {
	for _, datapath := range []string{"tc", "xdp", "user"} {
		for _, mode := range []string{"inline", "pool", "poller"} {
			all = append(all, way{datapath, mode})
		}
	}
	return all
}

// tour visits all cells, so that each datapath follows each other one; the whole of it has every cell after every
// other one.
func tour(whole bool) (to []way) {
	all := ways()
	if !whole {
		for _, step := range []int{4, 5} {
			for n := range all {
				to = append(to, all[n*step%len(all)])
			}
		}
		return to
	}
	for _, from := range all {
		for _, next := range all {
			if next != from {
				to = append(to, from, next)
			}
		}
	}
	return to
}

func stitched() *epair.Config {
	c := cell{epair.Veth, epair.Veth, "tc", "inline"}.config("0,1")
	c.Pairs[0].A.Addresses, c.Pairs[0].B.Addresses = nil, nil
	return c
}

// load is a sender and who follows what comes of it.
type load struct {
	d          *control.Daemon
	s          *sender
	stop       chan struct{}
	ended      atomic.Bool
	sent, came chan error
	n          numbers
	born       control.Pair
	watched    func()
}

// startLoad lets end a send to end b, tick frames each millisecond.
func startLoad(t *testing.T, d *control.Daemon, tick int, bypass bool) *load {
	t.Helper()
	quiet(t, "a")
	quiet(t, "b")
	far := orderFar(t, "b")
	l := &load{d: d, s: newSender(t, "a", bypass), stop: make(chan struct{}), sent: make(chan error, 1), came: make(chan error, 1)}
	l.born = atRest(t, d)
	l.watched = monotonic(t, d)
	cpu := lastCPU(t)
	go func() { l.sent <- l.s.run(cpu, tick, l.stop) }()
	go func() { var err error; l.n, err = follow(far, &l.ended); l.came <- err }()
	return l
}

// end checks that nothing was overtaken, and returns how many frames are missing and how many the ledger names.
func (l *load) end(t *testing.T) (lost, named uint64) {
	t.Helper()
	close(l.stop)
	if err := <-l.sent; err != nil {
		t.Error(err)
	}
	p := atRest(t, l.d)
	l.ended.Store(true)
	if err := <-l.came; err != nil {
		t.Error(err)
	}
	l.watched()
	if l.n.reordered > 0 || l.n.doubled > 0 || l.n.came == 0 {
		t.Errorf("%+v", l.n)
	}
	lost, named = uint64(l.s.total()-l.n.came), sum(p.AB.Drops)-sum(l.born.AB.Drops)
	t.Logf("sent %d, came %d, longest silence %v, drops %v", l.s.total(), l.n.came, l.n.silent, p.AB.Drops)
	return lost, named
}

// A stitched pair changes its datapath under load, from each to each: no frame is overtaken or doubled, those that are missing
// are in the ledger, and the ledger goes on as if nothing had happened.
func TestDatapathChanges(t *testing.T) {
	needRoot(t)
	d := start(t, stitched())
	l := startLoad(t, d, 10, false)
	dropped := visit(t, d, tour(os.Getenv("EPAIR_ALL") == "1"))
	if lost, named := l.end(t); lost != named || dropped != named {
		t.Errorf("%d frames are missing, the ledger names %d, the changes %d", lost, named, dropped)
	}
}

// Frames that pass no egress hook aren't held back. What is missing of them is in the ledger too, but for those that
// were on their way whenever the outer devices were asked.
func TestDatapathBypass(t *testing.T) {
	needRoot(t)
	d := start(t, stitched())
	l := startLoad(t, d, 10, true)
	dropped := visit(t, d, []way{{"user", "pool"}, {"xdp", "pool"}, {"tc", "pool"}, {"xdp", "inline"}, {"user", "inline"}, {"tc", "inline"}})
	const underWay = 64 // a NAPI poll
	if lost, named := l.end(t); max(lost, named)-min(lost, named) > underWay || dropped != named {
		t.Errorf("%d frames are missing, the ledger names %d, the changes %d", lost, named, dropped)
	}
}

// A datapath that can't be had leaves the pair as it was.
func TestDatapathFails(t *testing.T) {
	needRoot(t)
	d := start(t, stitched())
	foreign := occupyXDP(t, "b")
	l := startLoad(t, d, 5, false)
	for _, from := range []way{{"tc", "pool"}, {"user", "pool"}, {"tc", "poller"}} {
		if _, err := d.Set("p", control.PairChange{Datapath: from.datapath, Mode: from.mode}); err != nil {
			t.Fatal(err)
		}
		_, err := d.Set("p", control.PairChange{Datapath: "xdp"})
		if !errors.Is(err, control.ErrRefused) {
			t.Errorf("%v → xdp: %v", from, err)
		}
		p, _ := d.Pair("p")
		if p.Datapath != from.datapath || p.Mode != from.mode || p.Trouble != "" {
			t.Errorf("after %v: %+v", from, p)
		}
	}
	if lost, named := l.end(t); lost != named {
		t.Errorf("%d frames are missing, the ledger names %d", lost, named)
	}
	if err := foreign.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Set("p", control.PairChange{Datapath: "xdp"}); err != nil {
		t.Error(err)
	}
}

// occupyXDP attaches a program to an end.
func occupyXDP(t *testing.T, side string) (l link.Link) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	inNS(t, side, func() error {
		i, err := netlink.LinkByName("e0")
		if err == nil {
			l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: i.Attrs().Index, Flags: link.XDPGenericMode})
		}
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TCP connections live through changes, both ways, and nothing of what they carry changes.
func TestDatapathTCP(t *testing.T) {
	needRoot(t)
	d := start(t, cell{epair.Veth, epair.Veth, "tc", "inline"}.config("0,1"))
	var ln net.Listener
	inNS(t, "b", func() (err error) { ln, err = net.Listen("tcp", "10.66.0.2:0"); return err })
	defer ln.Close()
	var stop atomic.Bool
	done := make(chan error, 4)
	talk := func(c net.Conn) {
		go func() { done <- writeNumbers(c, &stop) }()
		go func() { done <- readNumbers(c) }()
	}
	go func() {
		if c, err := ln.Accept(); err == nil {
			talk(c)
		}
	}()
	var c net.Conn
	inNS(t, "a", func() (err error) { c, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second); return err })
	talk(c)
	visit(t, d, []way{{"user", "pool"}, {"xdp", "pool"}, {"tc", "pool"}, {"xdp", "inline"}, {"user", "inline"}, {"tc", "poller"}, {"user", "poller"}, {"tc", "inline"}})
	stop.Store(true)
	for range 4 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("tcp stalls")
		}
	}
}

// writeNumbers writes 1, 2, 3 … until stop, and ends the stream.
func writeNumbers(c net.Conn, stop *atomic.Bool) error {
	w := bufio.NewWriterSize(c, 1<<16)
	for n := uint64(1); !stop.Load(); n++ {
		if _, err := w.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), c.(*net.TCPConn).CloseWrite())
}

func readNumbers(c net.Conn) error {
	r, b := bufio.NewReaderSize(c, 1<<16), make([]byte, 8)
	for n := uint64(1); ; n++ {
		_, err := io.ReadFull(r, b)
		if errors.Is(err, io.EOF) && n > 1 {
			return c.Close()
		}
		if err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(b); got != n {
			return fmt.Errorf("read %d, want %d", got, n)
		}
	}
}

// The hash of kernel datapaths changes under load: each frame comes through once, in its place.
func TestKernelHashChanges(t *testing.T) {
	needRoot(t)
	for _, datapath := range []string{"direct", "tc", "xdp"} {
		t.Run(datapath, func(t *testing.T) {
			c := stitched()
			c.Pairs[0].Datapath, c.Pairs[0].Mode = datapath, "pool"
			d := start(t, c)
			l := startLoad(t, d, 20, false)
			for i := range 16 {
				fn, table := []string{"xxhash", "toeplitz"}[i%2], []string{"equal", "weight 1 3"}[i/2%2]
				if _, err := d.SetRSS(control.RSSChange{Func: &fn, Table: &table}); err != nil {
					t.Fatal(err)
				}
			}
			if lost, named := l.end(t); lost != 0 || named != 0 {
				t.Errorf("%d frames are missing, the ledger names %d", lost, named)
			}
		})
	}
}

// visit changes a pair to each of the cells.
func visit(t *testing.T, d *control.Daemon, to []way) (dropped uint64) {
	t.Helper()
	at := way{"tc", "inline"}
	took := map[string][]float64{}
	for _, w := range to {
		had := d.Pairs()[0].AB.Tx
		c, err := d.Set("p", control.PairChange{Datapath: w.datapath, Mode: w.mode})
		if err != nil {
			t.Fatalf("%v → %v: %v", at, w, err)
		}
		if p := c.Pair; p.Datapath != w.datapath || p.Mode != w.mode || p.Trouble != "" {
			t.Fatalf("%v → %v: %+v", at, w, p)
		}
		if at.datapath != w.datapath {
			name := at.datapath + " → " + w.datapath
			took[name] = append(took[name], c.Change.BlockedMicros/1000)
			t.Logf("%v → %v: blocked %.1f of %.1f ms, %d dropped", at, w, c.Change.BlockedMicros/1000, c.Change.TookMicros/1000, c.Change.Dropped)
		}
		dropped += c.Change.Dropped
		at = w
		for end := time.Now().Add(5 * time.Second); d.Pairs()[0].AB.Tx < had+50; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("nothing comes through %v: %+v", w, d.Pairs()[0])
			}
		}
	}
	for name, ms := range took {
		slices.Sort(ms)
		t.Logf("%s: blocked %.1f ms (median of %d)", name, ms[len(ms)/2], len(ms))
	}
	return dropped
}

// atRest waits until nothing is queued.
func atRest(t *testing.T, d *control.Daemon) control.Pair {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		before, p := d.Pairs()[0], d.Pairs()[0]
		if p.AB.Queued == 0 && p.BA.Queued == 0 && p.AB.Rx == before.AB.Rx {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("never at rest: %+v", p)
		}
	}
}

func sum(drops map[string]uint64) (n uint64) {
	for _, k := range drops {
		n += k
	}
	return n
}

func lastCPU(t *testing.T) int {
	t.Helper()
	all, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return all[len(all)-1]
}

// The ends' offloads are those of a pair that was made with the datapath.
func TestDatapathOffloads(t *testing.T) {
	needRoot(t)
	fresh := map[way]map[string]ethtool.Feature{}
	for _, w := range ways() {
		c := stitched()
		c.Pairs[0].Datapath, c.Pairs[0].Mode = w.datapath, w.mode
		d := start(t, c)
		fresh[w] = features(t)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, stitched())
	for _, w := range tour(false) {
		if _, err := d.Set("p", control.PairChange{Datapath: w.datapath, Mode: w.mode}); err != nil {
			t.Fatal(err)
		}
		for f, now := range features(t) {
			if now.On != fresh[w][f].On {
				t.Errorf("%v: %s is %v, want %v", w, f, now.On, fresh[w][f].On)
			}
		}
	}
}

// Changes leave nothing behind: no program on an end, and nothing in this process.
func TestDatapathLeavesNothing(t *testing.T) {
	needRoot(t)
	d := start(t, stitched())
	var held []int
	for range 3 {
		for _, w := range []way{{"xdp", "pool"}, {"tc", "pool"}, {"xdp", "poller"}, {"user", "pool"}, {"tc", "poller"}, {"user", "inline"}} {
			if _, err := d.Set("p", control.PairChange{Datapath: w.datapath, Mode: w.mode}); err != nil {
				t.Fatal(err)
			}
		}
		held = append(held, bpfObjects(t))
		for _, side := range []string{"a", "b"} {
			if n := attached(t, side); n > 0 {
				t.Errorf("end %s has %d programs", side, n)
			}
		}
	}
	if held[2] != held[1] {
		t.Errorf("BPF objects: %v", held)
	}
}

// attached counts the programs of an end.
func attached(t *testing.T, side string) (n int) {
	t.Helper()
	inNS(t, side, func() error {
		l, err := netlink.LinkByName("e0")
		if err != nil {
			return err
		}
		if l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			n++
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
			if err != nil {
				return err
			}
			n += len(r.Programs)
		}
		return nil
	})
	return n
}

// bpfObjects counts the programs, maps and links that this process holds.
func bpfObjects(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "anon_inode:bpf") {
			n++
		}
	}
	return n
}

func features(t *testing.T) (all map[string]ethtool.Feature) {
	t.Helper()
	inNS(t, "a", func() (err error) { all, err = ethtool.Features("e0"); return err })
	return all
}

// What can't be is refused, and the pair goes on as before.
func TestDatapathRefusals(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		from cell
		to   control.PairChange
		want string
	}{
		{cell{epair.Veth, epair.Veth, "tc", "inline"}, control.PairChange{Datapath: "direct"}, "direct is one veth"},
		{cell{epair.Veth, epair.Veth, "direct", "inline"}, control.PairChange{Datapath: "tc"}, "direct is one veth"},
		{cell{epair.TAP, epair.Veth, "packet", "inline"}, control.PairChange{Datapath: "xdp"}, "tap"},
		{cell{epair.Veth, epair.Veth, "tc", "inline"}, control.PairChange{Datapath: "xdp", Lossless: true}, "lossless"},
		{cell{epair.Veth, epair.Veth, "tc", "inline"}, control.PairChange{Mode: "poller", Lossless: true}, "lossless"},
	} {
		t.Run(c.from.String()+"/"+c.to.Datapath+c.to.Mode, func(t *testing.T) {
			d := start(t, c.from.config("0,1"))
			before := d.Pairs()[0]
			_, err := d.Set("p", c.to)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v", err)
			}
			if p := d.Pairs()[0]; p.Datapath != before.Datapath || p.Mode != before.Mode || p.Trouble != "" {
				t.Fatalf("%+v", p)
			}
			inOrder(t, 2_000)
		})
	}
}
