package skb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// Sockets talk over every cell: TCP with all its offloads, both ways at once, and UDP.
func TestSockets(t *testing.T) {
	eachCell(t, func(t *testing.T, path string, mode kern.Mode) {
		l := newLab(t, path, mode)
		for h, addr := range map[*host]string{&l.a: "10.9.0.1/24", &l.b: "10.9.0.2/24"} {
			if err := porttest.AddAddr(h.ns, h.name, addr); err != nil {
				t.Fatal(err)
			}
		}
		talk(t, l)
		datagrams(t, l)
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			ab, ba, err := l.c.Ledgers()
			if err != nil {
				t.Fatal(err)
			}
			if ab.Imbalance() == 0 && ba.Imbalance() == 0 && ab.Queued == 0 && ba.Queued == 0 {
				if ab.Tx == 0 || ba.Tx == 0 || ab.TxBytes == 0 {
					t.Errorf("nothing was counted: %s; %s", show(ab), show(ba))
				}
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s; %s", show(ab), show(ba))
			}
		}
	})
}

// talk sends random bytes by TCP and checks that they come back.
func talk(t *testing.T, l *lab) {
	t.Helper()
	var ln net.Listener
	if err := l.b.ns.Do(func() (err error) { ln, err = net.Listen("tcp4", "10.9.0.2:0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	echoed := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			defer c.Close()
			_, err = io.Copy(c, c)
		}
		echoed <- err
	}()
	var c net.Conn
	if err := l.a.ns.Do(func() (err error) { c, err = net.DialTimeout("tcp4", ln.Addr().String(), 10*time.Second); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	payload := make([]byte, 8<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(payload)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(payload)
		c.(*net.TCPConn).CloseWrite()
		sent <- err
	}()
	h := sha256.New()
	if _, err := io.Copy(h, c); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := <-echoed; err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(payload); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Error("TCP payload changed on the way")
	}
}

// datagrams exchanges some by UDP, each answered before the next.
func datagrams(t *testing.T, l *lab) {
	t.Helper()
	var far net.PacketConn
	if err := l.b.ns.Do(func() (err error) { far, err = net.ListenPacket("udp4", "10.9.0.2:0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := far.ReadFrom(buf)
			if err != nil {
				return
			}
			far.WriteTo(buf[:n], from)
		}
	}()
	var c net.Conn
	if err := l.a.ns.Do(func() (err error) { c, err = net.Dial("udp4", far.LocalAddr().String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 64<<10)
	for _, size := range []int{1, 100, 1472, 4000, 60000} {
		msg := bytes.Repeat([]byte{byte(size)}, size)
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(msg); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(buf); err != nil || !bytes.Equal(buf[:n], msg) {
			t.Errorf("datagram of %d bytes: %d came back, %v", size, n, err)
		}
	}
}

// tags sends a frame with tags before its ethertype, and checks that they arrive: in the frame or beside it. It
// returns how many it sent.
func tags(t *testing.T, tx, rx int, plain []byte) uint64 {
	t.Helper()
	if err := unix.SetsockoptInt(rx, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	all := [][]uint32{{0x81000064}, {0x88a80065, 0x81000066}}
	for _, tags := range all {
		f := bytes.Clone(plain[:12])
		for _, tag := range tags {
			f = binary.BigEndian.AppendUint32(f, tag)
		}
		f = append(f, plain[12:]...)
		if _, err := unix.Write(tx, f); err != nil {
			t.Fatal(err)
		}
		got, err := withTag(rx)
		if err != nil || !bytes.Equal(got, f) {
			t.Errorf("tags %x: sent\n%x, got\n%x (%v)", tags, f, got, err)
		}
	}
	return uint64(len(all))
}

// withTag receives a frame and puts its outermost tag back.
func withTag(fd int) ([]byte, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 5000); err != nil || n == 0 {
		return nil, fmt.Errorf("%w: %v", errNone, err)
	}
	buf, oob := make([]byte, 2048), make([]byte, 256)
	n, noob, _, _, err := unix.Recvmsg(fd, buf, oob, 0)
	if err != nil {
		return nil, err
	}
	f := buf[:n]
	msgs, err := unix.ParseSocketControlMessage(oob[:noob])
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		// struct tpacket_auxdata
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tci, tpid := binary.NativeEndian.Uint16(m.Data[16:]), binary.NativeEndian.Uint16(m.Data[18:])
		f = append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(bytes.Clone(f[:12]), tpid), tci), f[12:]...)
	}
	return f, nil
}

// In mode poller each direction is received by a thread on a CPU of its own, and what was changed is put back.
func TestThreads(t *testing.T) {
	for _, path := range []string{"direct", "tc"} {
		t.Run(path, func(t *testing.T) {
			l := newLab(t, path, kern.Poller)
			threads := l.c.Threads()
			if len(threads) != 2 {
				t.Fatalf("threads: %+v", threads)
			}
			for _, th := range threads {
				var set unix.CPUSet
				if err := unix.SchedGetaffinity(th.PID, &set); err != nil || set.Count() != 1 || !set.IsSet(th.CPU) {
					t.Errorf("thread %+v may run on %v (%v)", th, set, err)
				}
			}
			cpu := whereabouts(t, &l.b)
			tx, rx := l.a.socket(t, 0), l.b.socket(t, unix.ETH_P_ALL)
			for flow := range uint32(20) {
				exchange(t, "by a thread", tx, rx, frame(l.b.mac, l.a.mac, flow, 1, 100), unix.PACKET_HOST)
			}
			l.balance(0, 20)
			if on := cpu(); on != uint64(threads[0].CPU)+1 {
				t.Errorf("frames came on cpu %d, not %d", int(on)-1, threads[0].CPU)
			}
			if _, err := l.c.SetMode(kern.Inline); err != nil {
				t.Fatal(err)
			}
			if left := l.c.Threads(); len(left) != 0 {
				t.Errorf("threads left: %v", left)
			}
			exchange(t, "inline again", tx, rx, frame(l.b.mac, l.a.mac, 1, 1, 100), unix.PACKET_HOST)
			l.balance(0, 21)
		})
	}
}

// whereabouts watches an end, and returns what tells on which CPU the last frame arrived: its number + 1, or 0.
func whereabouts(t *testing.T, h *host) func() uint64 {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "MIT", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.FnGetSmpProcessorId.Call(),
		asm.Add.Imm(asm.R0, 1),
		asm.StoreMem(asm.R6, 0, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	err = h.ns.Do(func() error {
		k, err := link.AttachTCX(link.TCXOptions{Interface: h.index, Program: p, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { k.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() (v uint64) {
		if err := m.Lookup(uint32(0), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
}
