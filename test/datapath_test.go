package test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

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
		before, _ := d.Pair("p")
		_, err := d.Set("p", control.PairChange{Datapath: "xdp"})
		if !errors.Is(err, control.ErrRefused) {
			t.Errorf("%v → xdp: %v", from, err)
		}
		p, _ := d.Pair("p")
		if p.Datapath != from.datapath || p.Mode != from.mode || p.Steer != before.Steer || p.Trouble != "" {
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
