package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// raw is a packet socket on an inner side.
func (w *world) raw(t *testing.T, end int) int {
	t.Helper()
	fd := -1
	w.in(t, end, func() (err error) {
		proto := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto)); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: w.veth[end].InnerIndex, Protocol: proto}),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	})
	return fd
}

// receive returns the next frame as it was on the wire, and its packet type.
func receive(t *testing.T, fd int) (frame []byte, pkttype uint8) {
	t.Helper()
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	n, oobn, _, from, err := unix.Recvmsg(fd, buf, oob, 0)
	for errors.Is(err, unix.EINTR) { // the runtime's own signals, as there is a time-out
		n, oobn, _, from, err = unix.Recvmsg(fd, buf, oob, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	frame = buf[:n]
	for _, m := range msgs {
		const tagValid, tpidValid = 1 << 4, 1 << 6 // TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID
		status := binary.NativeEndian.Uint32(m.Data)
		if m.Header.Type != unix.PACKET_AUXDATA || status&tagValid == 0 {
			continue
		}
		tpid := uint16(unix.ETH_P_8021Q)
		if status&tpidValid != 0 {
			tpid = binary.NativeEndian.Uint16(m.Data[18:])
		}
		tag := binary.BigEndian.AppendUint16(nil, tpid)
		tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		frame = append(append(bytes.Clone(frame[:12]), tag...), frame[12:]...)
	}
	return frame, from.(*unix.SockaddrLinklayer).Pkttype
}

func etherFrame(dst [6]byte, middle string, size int, r *rand.Rand) []byte {
	f := append(dst[:], 2, 0, 0, 0, 0, 1)
	f = append(f, middle...)
	for len(f) < size {
		f = append(f, byte(r.Uint32()))
	}
	return f
}

// Every frame arrives as it was sent, with the packet type that a veth gives it, in every mode.
func TestCable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	foreign, broadcast, multicast := [6]byte{2, 9, 9, 9, 9, 9}, [6]byte{255, 255, 255, 255, 255, 255}, [6]byte{1, 0, 0x5e, 1, 2, 3}
	for _, mtu := range []int{1500, 3000, 9000} {
		w := newWorld(t, mtu, 2)
		x := w.cross(t, kern.Inline)
		fds := [2]int{w.raw(t, 0), w.raw(t, 1)}
		for _, m := range modes {
			if _, err := x.SetMode(m); err != nil {
				t.Fatal(err)
			}
			for _, f := range [][]byte{
				etherFrame(foreign, "\x88\xb5", 60, r),
				etherFrame(broadcast, "\x88\xb5", 15, r), // short ones aren't padded
				etherFrame(multicast, "\x88\xb5", 61, r),
				etherFrame(multicast, "\x00\x20\x42\x42\x03", 46, r),                                   // IEEE 802.3
				etherFrame(foreign, "\x81\x00\x20\x05\x88\xb5", 64, r),                                 // 802.1Q
				etherFrame(foreign, "\x88\xa8\x00\x07\x81\x00\x00\x08\x08\x00\x45", 200, r),            // QinQ
				etherFrame(broadcast, "\x81\x00\x00\x09\x08\x06", 64, r),                               // tagged ARP
				etherFrame(foreign, "\x08\x00\x45\x00\x00\x14\x00\x00\x20\x00\x40\x11\xff\xff", 90, r), // bad checksum
				etherFrame(foreign, "\x86\xdd\x60", 14+mtu, r),
				etherFrame(foreign, "\x81\x00\x00\x05\x86\xdd\x60", 18+mtu, r),
				etherFrame(foreign, "\x08\x00\x45", 14+mtu, r),
			} {
				for from := range 2 {
					if _, err := unix.Write(fds[from], f); err != nil {
						t.Fatal(err)
					}
					got, typ := receive(t, fds[1-from])
					if !bytes.Equal(got, f) {
						t.Errorf("mtu %d, %s: %d bytes\n%x became\n%x", mtu, m, len(f), f[:min(64, len(f))], got[:min(64, len(got))])
					}
					want := uint8(unix.PACKET_OTHERHOST)
					if f[0] == 255 {
						want = unix.PACKET_BROADCAST
					} else if f[0] == 1 {
						want = unix.PACKET_MULTICAST
					}
					if typ != want {
						t.Errorf("%x is of packet type %d, want %d", f[:14], typ, want)
					}
				}
			}
		}
		ab, ba := balance(t, x)
		if total(ab.Drops)+total(ba.Drops) != 0 || ab.RxBytes != ab.TxBytes || ba.RxBytes != ba.TxBytes {
			t.Errorf("a→b %+v\nb→a %+v", ab, ba)
		}
	}
}

// A frame that is longer than the far end takes is dropped, and counted.
func TestTooLong(t *testing.T) {
	w := newWorld(t, 9000, 1)
	w.veth[1] = porttest.NewVeth(t, w.outer, porttest.NewNS(t), "c", 1500, 1)
	w.in(t, 1, func() error { return finishFrames("ci") })
	x := w.cross(t, kern.Inline)
	fd := w.raw(t, 0)
	f := etherFrame([6]byte{2, 2, 2, 2, 2, 2}, "\x88\xb5", 4000, rand.New(rand.NewPCG(1, 1)))
	if _, err := unix.Write(fd, f); err != nil {
		t.Fatal(err)
	}
	if ab, _ := balance(t, x); ab.Drops["redirect"] != 1 {
		t.Errorf("ledger %+v", ab)
	}
}

// Nothing of ours goes with a frame beyond the far end: no metadata, mark, priority or hash.
func TestNothingCrosses(t *testing.T) {
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Inline)
	bad, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXIngress, License: "GPL", Instructions: spy(bad.FD())})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	w.in(t, 1, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: w.veth[1].InnerIndex, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	for _, m := range modes {
		if _, err := x.SetMode(m); err != nil {
			t.Fatal(err)
		}
		w.ping(t, 0, 10, 100, 1400)
	}
	var n [2]uint64
	for i := range n {
		if err := bad.Lookup(uint32(i), &n[i]); err != nil {
			t.Fatal(err)
		}
	}
	if n[0] < 9 || n[1] != 0 {
		t.Errorf("of %d frames, %d have something with them", n[0], n[1])
	}
}

// spy counts frames in counter 0, and in counter 1 those that have metadata, a mark, a priority or a hash.
func spy(fd int) asm.Instructions {
	const mark, priority, hash, data, dataMeta = 8, 32, 68, 76, 140 // struct __sk_buff
	count := func(key int64, skip string) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -4, key, asm.Word),
			asm.LoadMapPtr(asm.R1, fd),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, skip),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		}
	}
	p := append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, count(0, "out")...)
	for _, off := range []int16{mark, priority, hash} {
		p = append(p, asm.LoadMem(asm.R1, asm.R6, off, asm.Word), asm.JNE.Imm(asm.R1, 0, "bad"))
	}
	p = append(p,
		asm.LoadMem(asm.R1, asm.R6, data, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, dataMeta, asm.Word),
		asm.JEq.Reg(asm.R1, asm.R2, "out"))
	bad := count(1, "out")
	bad[0] = bad[0].WithSymbol("bad")
	p = append(p, bad...)
	return append(p, asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), asm.Return()) // TCX_NEXT
}
