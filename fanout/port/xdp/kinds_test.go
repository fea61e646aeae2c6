package xdp

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// receiveOne waits for a frame.
func receiveOne(t *testing.T, rx port.Rx) []byte {
	t.Helper()
	var b [1]port.Frame
	waitFor(t, "a frame", func() bool {
		n, err := rx.Receive(b[:])
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	f := bytes.Clone(rx.Bytes(&b[0]))
	rx.Release(0, b[:])
	return f
}

// TestGenericMode: a device whose driver knows no XDP works, and the end says so.
func TestGenericMode(t *testing.T) {
	w := newWorld(t, 1500, 1)
	ifindex := 0
	err := w.outer.Do(func() error {
		m := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mv", ParentIndex: w.veth[0].OuterIndex}, Mode: netlink.MACVLAN_MODE_PASSTHRU}
		if err := netlink.LinkAdd(m); err != nil {
			return err
		}
		l, err := netlink.LinkByName("mv")
		if err != nil {
			return err
		}
		ifindex = l.Attrs().Index
		return netlink.LinkSetUp(l)
	})
	if err != nil {
		t.Fatal(err)
	}
	porttest.WaitRunning(t, w.outer, "mv")
	c := w.config(PairConfig{})
	c.A.Ifindex = ifindex
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.A.Mode() != Generic || p.B.Mode() != Native {
		t.Errorf("modes %s and %s", p.A.Mode(), p.B.Mode())
	}
	rx, tx := halves(t, p.A)
	far := w.far(t, 0)
	want := make([]byte, 200)
	numbered(want, 7)
	if err := far.Send(nil, want); err != nil {
		t.Fatal(err)
	}
	if f := receiveOne(t, rx); !bytes.Equal(f, want) {
		t.Errorf("received % x", f)
	}
	src := porttest.NewSource(want)
	var sum port.Tally
	tx.Send(src, src.Frames(), &sum)
	if _, f, err := far.Recv(patience); !bytes.Equal(f, want) {
		t.Errorf("came % x, error %v, tally %+v", f, err, sum)
	}
}

// TestTagBesideFrame: a tag that the sender's stack keeps beside the frame isn't in what XDP
// shows, unless the sending interface's tag offloads are off. So those who own it turn them off.
func TestTagBesideFrame(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{})
	rx, _ := halves(t, p.A)
	pushTags(t, w.veth[0].InnerNS, w.veth[0].InnerIndex)
	want := make([]byte, 60)
	numbered(want, 1)
	tagged := append(append(bytes.Clone(want[:12]), 0x81, 0, 0, 42), want[12:]...)
	for _, off := range []bool{false, true} {
		if off {
			ethtoolSet(t, w.veth[0].InnerNS, "-K", "ai", "txvlan", "off")
		}
		sendThroughStack(t, w.veth[0].InnerNS, w.veth[0].InnerIndex, want)
		got := receiveOne(t, rx)
		if off && !bytes.Equal(got, tagged) {
			t.Errorf("tag offload off: received % x", got)
		}
		if !off && !bytes.Equal(got, want) {
			t.Errorf("XDP shows tags now: received % x (what doc.go says of them is no longer true)", got)
		}
	}
}

// TestMTURaised: frames that are longer than chunks have room for, as the MTU was raised under the pair, are
// counted, and their neighbours cross.
func TestMTURaised(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{})
	rx, tx := halves(t, p.A)
	for _, s := range []struct {
		ns   *porttest.NS
		name string
	}{{w.outer, "ao"}, {w.veth[0].InnerNS, "ai"}} {
		err := s.ns.Do(func() error {
			l, err := netlink.LinkByName(s.name)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(l, 3000)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	far := w.far(t, 0)
	for _, n := range []int{1600, smallChunk - headroom, smallChunk - headroom + 1, 3000, 60} {
		if err := far.Send(nil, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{1600, smallChunk - headroom, 60} {
		if f := receiveOne(t, rx); len(f) != want {
			t.Errorf("received %d bytes, want %d", len(f), want)
		}
	}
	if s := rx.Stats(); s.Drops[port.RxTruncated] != 2 || s.Drops.Total() != 2 {
		t.Errorf("drops %v, want 2 rx_truncated", s.Drops)
	}
	src := porttest.NewSource(make([]byte, 1600), make([]byte, smallChunk-headroom), make([]byte, smallChunk-headroom+1), make([]byte, 60))
	var sum port.Tally
	tx.Send(src, src.Frames(), &sum)
	if sum.Frames != 3 || sum.Drops[port.TxMTU] != 1 {
		t.Errorf("tally %+v, want 3 and 1 tx_mtu", sum)
	}
}

// pushTags attaches a program that gives each frame that leaves by an interface the tag 42.
func pushTags(t *testing.T, ns *porttest.NS, ifindex int) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "push", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, 0x0081), // ETH_P_8021Q in network order
			asm.Mov.Imm(asm.R3, 42),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	var l link.Link
	err = ns.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Program: prog, Interface: ifindex, Attach: ebpf.AttachTCXEgress})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// sendThroughStack sends a frame by a packet socket that passes the egress hook.
func sendThroughStack(t *testing.T, ns *porttest.NS, ifindex int, frame []byte) {
	t.Helper()
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ethtoolSet runs ethtool in a namespace.
func ethtoolSet(t *testing.T, ns *porttest.NS, args ...string) {
	t.Helper()
	bin, err := exec.LookPath("ethtool")
	if err != nil {
		t.Skip("ethtool isn't installed")
	}
	var out []byte
	if err := ns.Do(func() (err error) {
		out, err = exec.Command(bin, args...).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("ethtool %v: %v: %s", args, err, out)
	}
}
