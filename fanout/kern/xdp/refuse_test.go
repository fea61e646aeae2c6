package xdp

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/ethtool"
)

// refused checks that New refuses a pair and says all of that, and leaves no program behind.
func refused(t *testing.T, c kern.Config, want ...string) {
	t.Helper()
	x, err := New(c)
	if err == nil {
		x.Close()
		t.Fatalf("not refused; want %q", want)
	}
	if !errors.Is(err, kern.ErrRefused) {
		t.Errorf("%v: isn't a refusal", err)
	}
	for _, s := range want {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v\nwithout %q", err, s)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("several lines: %v", err)
	}
}

func pass(t *testing.T, name string) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func attached(t *testing.T, ns *porttest.NS, name string) (id uint32) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			id = l.Attrs().Xdp.ProgId
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Another's program is never replaced, on whichever side and however it's attached.
func TestForeignProgram(t *testing.T) {
	for i, where := range []string{"ao", "bo", "ai", "bi"} {
		for _, byLink := range []bool{true, false} {
			w := newWorld(t, 1500, 1)
			v := w.veth[i%2]
			ns, index := v.OuterNS, v.OuterIndex
			if i >= 2 {
				ns, index = v.InnerNS, v.InnerIndex
			}
			p := pass(t, "others")
			err := ns.Do(func() error {
				if !byLink {
					l, err := netlink.LinkByIndex(index)
					if err != nil {
						return err
					}
					return netlink.LinkSetXdpFd(l, p.FD())
				}
				l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: index})
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			before := attached(t, ns, where)
			refused(t, w.config(kern.Inline), where, `"others"`, "ip link set dev "+where+" xdp off")
			if now := attached(t, ns, where); now != before || now == 0 {
				t.Errorf("program %d on %s became %d", before, where, now)
			}
			for _, other := range w.veth {
				for _, s := range []struct {
					ns   *porttest.NS
					name string
				}{{other.OuterNS, other.Outer}, {other.InnerNS, other.Inner}} {
					if id := attached(t, s.ns, s.name); s.name != where && id != 0 {
						t.Errorf("program %d is left on %s", id, s.name)
					}
				}
			}
		}
	}
}

// While a pair is open, nobody takes its hooks; they are free again when it's closed.
func TestHooksAreFreed(t *testing.T) {
	w := newWorld(t, 1500, 1)
	x := w.cross(t, kern.Poller)
	for _, s := range []struct {
		ns   *porttest.NS
		name string
	}{{w.outer, "ao"}, {w.outer, "bo"}, {w.ns(0), "ai"}, {w.ns(1), "bi"}} {
		if attached(t, s.ns, s.name) == 0 {
			t.Errorf("no program on %s", s.name)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		ns   *porttest.NS
		name string
	}{{w.outer, "ao"}, {w.outer, "bo"}, {w.ns(0), "ai"}, {w.ns(1), "bi"}} {
		if id := attached(t, s.ns, s.name); id != 0 {
			t.Errorf("program %d is left on %s", id, s.name)
		}
	}
	w.cross(t, kern.Inline)
	w.ping(t, 0, 10)
}

// An inner side that leaves checksums or tags to the device is refused, with the command against it.
func TestUnfinishedFrames(t *testing.T) {
	for _, feature := range []string{"tx-checksum-ip-generic", "tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"} {
		w := newWorld(t, 1500, 1)
		w.in(t, 1, func() error {
			_, err := ethtool.SetFeatures("bi", map[string]bool{feature: true})
			return err
		})
		refused(t, w.config(kern.Inline), "bi sends unfinished frames", "ethtool -K bi tx off")
	}
}

func TestGROIsNoted(t *testing.T) {
	w := newWorld(t, 1500, 1)
	w.poll(t)
	x := w.cross(t, kern.Pool)
	if notes := strings.Join(x.Notes(), "\n"); !strings.Contains(notes, "ai has GRO on") || !strings.Contains(notes, "bi has GRO on") {
		t.Errorf("notes: %s", notes)
	}
}

func TestNoNativeXDP(t *testing.T) {
	w := newWorld(t, 1500, 1)
	c := w.config(kern.Inline)
	err := w.outer.Do(func() error {
		d := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}}
		if err := netlink.LinkAdd(d); err != nil {
			return err
		}
		c.B = kern.End{Outer: kern.Device{NetNS: w.outer.FD(), Ifindex: d.Attrs().Index, Name: "bridge0"}}
		return netlink.LinkSetUp(d)
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, c, "bridge0 takes no frames from XDP")
	c.A, c.B = c.B, c.A
	refused(t, c, "bridge0 takes no frames from XDP")
}

// A veth whose outer side receives from fewer queues than the inner side sends by can't have XDP.
func TestQueues(t *testing.T) {
	w := newWorld(t, 1500, 1)
	ns := porttest.NewNS(t)
	var c = w.config(kern.Inline)
	err := w.outer.Do(func() error {
		v := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "qo", NumTxQueues: 2, NumRxQueues: 1, TxQLen: -1},
			PeerName:  "qi", PeerNamespace: netlink.NsFd(ns.FD()), PeerNumTxQueues: 2, PeerNumRxQueues: 2,
		}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		c.B.Outer = kern.Device{NetNS: w.outer.FD(), Ifindex: v.Index, Name: "qo"}
		return netlink.LinkSetUp(v)
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		l, err := netlink.LinkByName("qi")
		if err != nil {
			return err
		}
		c.B.Inner = kern.Device{NetNS: ns.FD(), Ifindex: l.Attrs().Index, Name: "qi"}
		return errors.Join(finishFrames("qi"), netlink.LinkSetUp(l))
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, c, "qo", "queues")
}

func TestOuterMissing(t *testing.T) {
	w := newWorld(t, 1500, 1)
	c := w.config(kern.Inline)
	c.A.Outer = kern.Device{}
	refused(t, c, "no outer device")
	c = w.config("turbo")
	refused(t, c, `no mode "turbo"`)
}
