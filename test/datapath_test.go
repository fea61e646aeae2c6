package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// tour visits cells so that each datapath follows each other one in each of the modes; the whole of it has
// every cell after every other one.
func tour(whole bool) (to []way) {
	all := ways()
	for step := 1; step < len(all); step++ {
		for at, n := 0, 0; n < len(all); n++ {
			at = (at + step) % len(all)
			to = append(to, all[at])
		}
		if !whole && step == 4 {
			break
		}
	}
	return to
}

func stitched() *epair.Config {
	c := cell{epair.Veth, epair.Veth, "tc", "inline"}.config("0,1")
	c.Pairs[0].A.Addresses, c.Pairs[0].B.Addresses = nil, nil
	return c
}

// A stitched pair changes its datapath under load, from each to each: no frame is overtaken or doubled, those that are missing
// are in the ledger, and the ledger goes on as if nothing had happened.
func TestDatapathChanges(t *testing.T) {
	needRoot(t)
	for _, bypass := range []bool{false, true} {
		t.Run(map[bool]string{false: "sockets", true: "bypass"}[bypass], func(t *testing.T) {
			d := start(t, stitched())
			quiet(t, "a")
			quiet(t, "b")
			far := orderFar(t, "b")
			s := newSender(t, "a", bypass)
			born := d.Pairs()[0]
			watched := monotonic(t, d)
			stop, sent, came := make(chan struct{}), make(chan error, 1), make(chan error, 1)
			var ended atomic.Bool
			var n numbers
			cpu := lastCPU(t)
			go func() { sent <- s.run(cpu, 10, stop) }()
			go func() { var err error; n, err = follow(far, &ended); came <- err }()
			dropped := visit(t, d, tour(os.Getenv("EPAIR_ALL") == "1"))
			close(stop)
			if err := <-sent; err != nil {
				t.Error(err)
			}
			p := atRest(t, d)
			ended.Store(true)
			if err := <-came; err != nil {
				t.Error(err)
			}
			watched()
			lost := s.total() - n.came
			named := sum(p.AB.Drops) - sum(born.AB.Drops)
			t.Logf("sent %d, came %d, longest silence %v, drops %v", s.total(), n.came, n.silent, p.AB.Drops)
			if n.reordered > 0 || n.doubled > 0 || n.came == 0 {
				t.Errorf("%+v", n)
			}
			if !bypass && (uint64(lost) != named || dropped != p.AB.Drops["fence"]) {
				t.Errorf("%d of %d frames are missing, the ledger names %d, the changes %d: %v", lost, s.total(), named, dropped, p.AB.Drops)
			}
			if uint64(lost) > named+uint64(s.total())/100 {
				t.Errorf("%d of %d frames are missing, the ledger names %d: %v", lost, s.total(), named, p.AB.Drops)
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
