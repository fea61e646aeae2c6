package xdp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// refuse opens a pair, which must fail with an error that has all of want in it, and leave nothing behind.
func refuse(t *testing.T, c PairConfig, want ...string) {
	t.Helper()
	before := measureFootprint(t)
	p, err := Open(c)
	if err == nil {
		p.Close()
		t.Fatalf("opened, want an error with %q", want)
	}
	for _, s := range want {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q has no %q in it", err, s)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error of several lines: %q", err)
	}
	if now := measureFootprint(t); now != before {
		t.Errorf("left behind: %+v, before %+v", now, before)
	}
}

// footprint is what a process holds of the kernel's.
type footprint struct{ fds, maps int }

func measureFootprint(t testing.TB) footprint {
	t.Helper()
	runtime.GC()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return footprint{len(fds), strings.Count(string(maps), "socket:")}
}

// warmUp lets the runtime open what it keeps open.
func warmUp(t testing.TB, w *world) {
	t.Helper()
	p, err := Open(w.config(PairConfig{}))
	if err == nil {
		err = p.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRefuse(t *testing.T) {
	w := newWorld(t, 1500, 2)
	warmUp(t, w)
	refuse(t, PairConfig{}, "no device")
	refuse(t, w.config(PairConfig{Workers: 3}), "ao", "2 transmit queues for 3 senders", "numtxqueues 3")
	refuse(t, w.config(PairConfig{Frames: 16}), "16 frames", "use 64 or more")
	c := w.config(PairConfig{})
	c.B.Ifindex = 12345
	refuse(t, c, "12345")

	big := porttest.NewVeth(t, w.outer, porttest.NewNS(t), "big", 9000, 1)
	c.B.Ifindex = big.OuterIndex
	refuse(t, c, "bigo", "9000", "3822", "port packet")

	const mtu = 3700 // fits a chunk, but not the driver's page
	mid := porttest.NewVeth(t, w.outer, porttest.NewNS(t), "mid", mtu, 1)
	c.B.Ifindex = mid.OuterIndex
	refuse(t, c, "mido", "MTU is too large", "3506")

	c.B.Ifindex = lopsided(t, w.outer)
	refuse(t, c, "lo1", "1 receive queues", "numtxqueues 1")
}

// lopsided makes a veth whose peer has more transmit queues than it has receive queues.
func lopsided(t *testing.T, ns *porttest.NS) (ifindex int) {
	t.Helper()
	err := ns.Do(func() error {
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "lo1", NumTxQueues: 2, NumRxQueues: 1, TxQLen: -1},
			PeerName:  "lo2", PeerNumTxQueues: 4, PeerNumRxQueues: 2,
		})
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName("lo1")
		if err == nil {
			ifindex = l.Attrs().Index
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ifindex
}

// TestForeignProgram: a program that is there stays, however it was attached, and the error names it.
func TestForeignProgram(t *testing.T) {
	w := newWorld(t, 1500, 1)
	warmUp(t, w)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebodys", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	attached := func() bool {
		var l netlink.Link
		err := w.outer.Do(func() (err error) { l, err = netlink.LinkByName(w.veth[1].Outer); return err })
		return err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
	}
	for _, flag := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		for _, byLink := range []bool{true, false} {
			off := attachForeign(t, w, prog, flag, byLink)
			refuse(t, w.config(PairConfig{}), "bo has XDP program", "somebodys", "ip link set dev bo xdp off")
			if !attached() {
				t.Error("the foreign program is gone")
			}
			off()
			warmUp(t, w)
		}
	}
}

func attachForeign(t *testing.T, w *world, prog *ebpf.Program, flag link.XDPAttachFlags, byLink bool) (off func()) {
	t.Helper()
	v := w.veth[1]
	var l link.Link
	set := func(fd int) error {
		return w.outer.Do(func() error {
			d, err := netlink.LinkByName(v.Outer)
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFdWithFlags(d, fd, int(flag))
		})
	}
	var err error
	if byLink {
		err = w.outer.Do(func() (err error) {
			l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: v.OuterIndex, Flags: flag})
			return err
		})
	} else {
		err = set(prog.FD())
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		var err error
		if byLink {
			err = l.Close()
		} else {
			err = set(-1)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestQueueTaken: a queue that another program's socket has is refused, after a while.
func TestQueueTaken(t *testing.T) {
	w := newWorld(t, 1500, 1)
	warmUp(t, w)
	u, err := newUMEM(64, smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	var s socket
	if err := w.outer.Do(func() (err error) { s, err = newSocket(); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(s.fd) }()
	r := &rxQueue{}
	if err := errors.Join(s.receiveRings(r, 16), s.unused(unix.XDP_UMEM_COMPLETION_RING), s.bind(u, -1, w.veth[1].OuterIndex, 0)); err != nil {
		t.Fatal(err)
	}
	defer func() { r.fill.close(); r.rx.close() }()
	start := time.Now()
	refuse(t, w.config(PairConfig{}), "bo", "queue 0", "another AF_XDP socket")
	if d := time.Since(start); d < bindPatience {
		t.Errorf("refused after %v", d)
	}
}

// TestMemlock: without CAP_IPC_LOCK, more than the limit of locked memory is refused, and the error says what to do.
func TestMemlock(t *testing.T) {
	ns := porttest.NewNS(t)
	const over = 1 << 20
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur > 1<<28 {
		t.Skipf("the limit of locked memory is %d MiB", limit.Cur>>20)
	}
	u, err := newUMEM(int(limit.Cur+over)/smallChunk, smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	err = ns.Do(func() error {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and so does its loss
		if err := dropIPCLock(); err != nil {
			return fmt.Errorf("drop CAP_IPC_LOCK: %w", err)
		}
		s, err := newSocket()
		if err != nil {
			return err
		}
		defer unix.Close(s.fd)
		return u.register(s.fd)
	})
	if err == nil || !strings.Contains(err.Error(), "ulimit -l") || !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("error %v", err)
	}
}

func dropIPCLock() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	return unix.Capset(&hdr, &data[0])
}

// TestOpenHalves: there is one receiving half and a transmitting half per sender, and what is closed
// can be opened again.
func TestOpenHalves(t *testing.T) {
	w := newWorld(t, 1500, 3)
	p := w.open(t, PairConfig{Workers: 2})
	for range 3 {
		rx, err := p.A.OpenRx(port.Worker{ID: 7})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.A.OpenRx(port.Worker{}); err == nil || !strings.Contains(err.Error(), "ao") {
			t.Errorf("second receiving half: %v", err)
		}
		var txs []port.Tx
		for id := range p.A.Senders() {
			tx, err := p.A.OpenTx(port.Worker{ID: 5 + id})
			if err != nil {
				t.Fatal(err)
			}
			txs = append(txs, tx)
		}
		if _, err := p.A.OpenTx(port.Worker{}); err == nil || !strings.Contains(err.Error(), "all 2 queues") {
			t.Errorf("third transmitting half: %v", err)
		}
		for _, tx := range txs {
			if err := errors.Join(tx.Close(), tx.Close()); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(rx.Close(), rx.Close()); err != nil {
			t.Error(err)
		}
	}
}
