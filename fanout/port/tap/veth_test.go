package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// The plain veth is the oracle of what is too long for an interface. Its sending side takes more
// than its receiving side. A tag is in the frame (raw), or beside it in the sender's skb (pushed),
// where the veth doesn't count it. A port sees both alike, so it must let through what
// either way passes a veth.
//
//	9000 inner ── veth ── 1500 outer ── Far      port ── tap0 1500 ── Far
func TestSendLikeVeth(t *testing.T) {
	const mtu = 1500
	outer, inner := porttest.NewNS(t), porttest.NewNS(t)
	v := porttest.NewVeth(t, outer, inner, "v", 9000, 1)
	setMTU(t, outer, v.Outer, mtu)
	near, vethFar := dial(t, inner, v.Inner), dial(t, outer, v.Outer)
	d := newTAP(t, "tap0", mtu)
	_, tx := d.open(t, port.Worker{}, mtu)
	tapFar := d.far(t)
	raw := func(f []byte) {
		if err := near.Send(nil, f); err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: the veth dropped it
			t.Fatal(err)
		}
	}
	byTAP := func(f []byte) {
		src := porttest.NewSource(f)
		tx.Send(src, src.Frames(), new(port.Tally))
	}
	sizes := []int{14, 15, 16, 17, 18, 20, 59, 60, 1513, 1514, 1515, 1518, 1519, 1522, 1523, 1600, 9000}
	t.Run("untagged", func(t *testing.T) {
		for _, size := range sizes {
			f := numbered(0, uint32(size), size)
			if veth, tap := passes(t, raw, vethFar, f), passes(t, byTAP, tapFar, f); tap != veth {
				t.Errorf("%d bytes: pass a veth: %v, a tap: %v", size, veth, tap)
			}
		}
	})
	for _, tag := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
		t.Run(fmt.Sprintf("tag %#x", tag), func(t *testing.T) {
			pushed := pusher(t, inner, v.InnerIndex, tag)
			for _, size := range sizes {
				if size < 20 {
					continue // nobody can read a tag in less (skb_vlan_untag)
				}
				f := numbered(0, uint32(size), size)
				binary.BigEndian.PutUint16(f[12:], tag)
				veth := passes(t, raw, vethFar, f)
				veth = passes(t, pushed, vethFar, f) || veth
				if tap := passes(t, byTAP, tapFar, f); tap != veth {
					t.Errorf("%d bytes: pass a veth: %v, a tap: %v", size, veth, tap)
				}
			}
		})
	}
}

// pusher returns a function that sends a frame whose outer tag isn't in it but beside it. What
// has no tag of that kind goes as it is.
func pusher(t *testing.T, ns *porttest.NS, ifindex int, tpid uint16) func(f []byte) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.Word), // __sk_buff.mark: the TCI, or nothing to do
		asm.JEq.Imm(asm.R2, 0, "out"),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, 0xffff),
		asm.Mov.Imm(asm.R2, int32(tpid>>8|tpid<<8&0xff00)),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	fd := -1
	var l link.Link
	err = ns.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); unix.Close(fd) })
	return func(f []byte) {
		mark := 0
		if binary.BigEndian.Uint16(f[12:]) == tpid {
			mark = 1<<16 | int(binary.BigEndian.Uint16(f[14:]))
			f = append(bytes.Clone(f[:12]), f[16:]...)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
			t.Fatal(err)
		}
		err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatalf("push tag %#x: %d bytes: %v", tpid, len(f), err)
		}
	}
}

func dial(t *testing.T, ns *porttest.NS, ifname string) *porttest.PacketFar {
	t.Helper()
	f, err := porttest.DialFar(ns, ifname)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// passes sends f and a frame that surely passes, and tells whether f came out before that.
func passes(t *testing.T, send func([]byte), far *porttest.PacketFar, f []byte) bool {
	t.Helper()
	last := numbered(9, 1<<30, 60)
	send(f)
	send(last)
	_, got, err := far.Recv(patience)
	if err != nil || got == nil {
		t.Fatalf("nothing came out: %v", err)
	}
	if bytes.Equal(got, last) {
		return false
	}
	if !bytes.Equal(got, f) {
		t.Errorf("frame of %d bytes came as %d: % x…", len(f), len(got), got[:min(len(got), 24)])
	}
	if _, got, err = far.Recv(patience); err != nil || !bytes.Equal(got, last) {
		t.Fatalf("the frame behind it came as %d bytes: %v", len(got), err)
	}
	return true
}
