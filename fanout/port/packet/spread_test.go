package packet

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// placer returns an End.Attach whose program is body.
func placer(t testing.TB, body ...asm.Instruction) func(fd int) error {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "BSD", Instructions: append(body, asm.Return()),
	})
	if err != nil {
		t.Skipf("load a socket filter: %v", err)
	}
	t.Cleanup(func() { _ = prog.Close() })
	return func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, prog.FD())
	}
}

// toHalf places all frames in one half.
func toHalf(t testing.TB, i int32) func(fd int) error { return placer(t, asm.Mov.Imm(asm.R0, i)) }

// byAddress places a frame by the last byte of its destination.
func byAddress(t testing.TB) func(fd int) error {
	const fromMAC = -0x200000 // SKF_LL_OFF
	return placer(t, asm.Mov.Reg(asm.R6, asm.R1), asm.LoadAbs(fromMAC+5, asm.Byte))
}

// to returns a frame for a half.
func to(half, n, size int) []byte {
	f := frame(n, size)
	f[5] = byte(half)
	return f
}

func (w *world) spread(s *Senders, v *porttest.Veth, slots int, attach func(int) error) *End {
	return &End{
		RxConfig: RxConfig{NetNS: w.outer.FD(), Ifindex: v.OuterIndex, Slots: slots},
		Senders:  s, Attach: attach,
	}
}

// halves opens n halves of an end.
func halves(t testing.TB, e *End, n int, w port.Worker) (rxs []*Rx) {
	t.Helper()
	if e.Spread(n) != port.Strict {
		t.Fatal("frames aren't spread")
	}
	for range n {
		rx, err := e.OpenRx(w)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rx.Close() })
		rxs = append(rxs, rx.(*Rx))
	}
	return rxs
}

// TestSpreadPort: each half is a port like any other, and behind it a queueing discipline changes nothing.
func TestSpreadPort(t *testing.T) {
	const mtu, slots = 1500, 256
	open := func(t *testing.T) *porttest.Rig {
		w := newWorld(t, mtu, 16)
		s := w.senderOf(t, SenderConfig{Qdisc: true})
		r := &porttest.Rig{A: w.end(t, s, w.a, slots), B: w.end(t, s, w.b, slots), Arena: w.arena}
		if err := r.A.Rx.Close(); err != nil {
			t.Fatal(err)
		}
		r.A.Rx = porttest.OpenSpread(t, w.spread(nil, w.a, slots, toHalf(t, 1)), 2, w.worker())
		return r
	}
	porttest.Run(t, porttest.Caps{MaxFrame: mtu + minFrame, Ring: slots / 2, GSO: true, Arena: true}, open)
}

// place sends a frame for each half and checks that it comes there, and nowhere else.
func place(t *testing.T, far *porttest.PacketFar, rxs []*Rx) {
	t.Helper()
	batch := make([]port.Frame, port.MaxBatch)
	for i, rx := range rxs {
		if err := far.Send(nil, to(i, i, 60)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Microsecond) {
			n, err := rx.Receive(batch)
			if n > 0 {
				rx.Release(0, batch[:n])
				break
			}
			if err != nil || time.Now().After(end) {
				t.Fatalf("the frame for half %d didn't come: %v", i, err)
			}
		}
	}
	for i, rx := range rxs {
		if n, err := rx.Receive(batch); n != 0 || err != nil {
			t.Fatalf("half %d got %d frames more, error %v", i, n, err)
		}
		if s := rx.Stats(); s.Drops.Total() != 0 {
			t.Errorf("half %d: drops %v", i, s.Drops)
		}
	}
}

// settle takes and drops what halves have to tell of a link that went down.
func settle(t *testing.T, rxs []*Rx) {
	t.Helper()
	batch := make([]port.Frame, port.MaxBatch)
	for _, rx := range rxs {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(checkEvery) {
			n, err := rx.Receive(batch)
			rx.Release(0, batch[:n])
			if err == port.ErrDown {
				break
			}
			if time.Now().After(end) {
				t.Fatal("a half wasn't told that the link went down")
			}
		}
	}
}

// TestSpread: each half gets its frames, from the first one on and however often the
// link flaps; closed halves can be opened again, fewer too.
func TestSpread(t *testing.T) {
	w := newWorld(t, 1500, 16)
	far := w.far(t, w.a)
	e := w.spread(nil, w.a, 128, byAddress(t))
	for _, n := range []int{4, 2, 3} {
		rxs := halves(t, e, n, w.worker())
		for range 6 {
			place(t, far, rxs)
			for _, up := range []bool{false, true} {
				if err := porttest.SetLink(w.outer, w.a.Outer, up); err != nil {
					t.Fatal(err)
				}
			}
			porttest.WaitRunning(t, w.a.InnerNS, w.a.Inner)
			settle(t, rxs)
		}
		place(t, far, rxs)
		for _, rx := range rxs {
			if err := rx.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	alone := *e
	alone.Attach = nil
	if alone.Spread(2) != port.Single || e.Spread(1) != port.Single {
		t.Error("spread without a program, or over one half")
	}
	rx, err := e.OpenRx(w.worker())
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	for i := range 3 {
		if err := far.Send(nil, to(i, i, 60)); err != nil {
			t.Fatal(err)
		}
	}
	batch := make([]port.Frame, port.MaxBatch)
	if n, err := rx.Receive(batch); n != 3 || err != nil {
		t.Errorf("the only half got %d frames, error %v", n, err)
	} else {
		rx.Release(0, batch[:n])
	}
}

// TestSpreadWhileOpening: frames that come while the halves open are received once or not at
// all, and by their half only; what a port of the end sends comes back to none.
func TestSpreadWhileOpening(t *testing.T) {
	const n = 4
	w := newWorld(t, 1500, 16)
	stop := make(chan struct{})
	sent := make(chan int, 1)
	far := w.far(t, w.a)
	go func() {
		i := 0
		for ; ; i++ {
			select {
			case <-stop:
				sent <- i
				return
			default:
				_ = far.Send(nil, to(i%n, i, 60))
			}
		}
	}()
	for range 10 {
		e := w.spread(nil, w.a, 4096, byAddress(t))
		rxs := halves(t, e, n, w.worker())
		own := w.tx(t, w.senderOf(t, SenderConfig{Qdisc: true}), w.a) // past a queueing discipline nobody is told
		send(t, own, porttest.NewSource(to(0, 1<<30, 60), to(1, 1<<30, 60)))
		batch := make([]port.Frame, port.MaxBatch)
		for i, rx := range rxs {
			last := -1
			for {
				k, err := rx.Receive(batch)
				if err != nil {
					t.Fatal(err)
				}
				for j := range batch[:k] {
					m := rx.Bytes(&batch[j])[port.VNetHdrLen:]
					if int(m[5]) != i || number(m) <= last || number(m) >= 1<<30 {
						t.Fatalf("half %d got frame %d of half %d after %d", i, number(m), m[5], last)
					}
					last = number(m)
				}
				rx.Release(0, batch[:k])
				if k < len(batch) {
					break
				}
			}
		}
		for _, rx := range rxs {
			if err := rx.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	if n := <-sent; n == 0 {
		t.Error("nothing was sent")
	}
}

// TestSpreadStoppedRing: when the ring of a half has stopped and was replaced, all halves get
// their own frames again.
func TestSpreadStoppedRing(t *testing.T) {
	w := newWorld(t, 1500, 4)
	fd, ifindex := tapDevice(t, w.outer, unix.IFF_VNET_HDR, 100)
	e := &End{RxConfig: RxConfig{NetNS: w.outer.FD(), Ifindex: ifindex, Slots: 64}, Attach: byAddress(t)}
	rxs := halves(t, e, 3, w.worker())
	batch := make([]port.Frame, port.MaxBatch)
	put := func(h porttest.Hdr, f []byte) {
		if _, err := unix.Write(fd, append(h[:], f...)); err != nil && err != unix.EIO { // EIO: it is down just now
			t.Fatalf("write: %v", err)
		}
	}
	take := func(half int) (mine bool) {
		n, err := rxs[half].Receive(batch)
		if err != nil && err != port.ErrDown {
			t.Fatalf("receive: %v", err)
		}
		for i := range batch[:n] {
			mine = mine || int(rxs[half].Bytes(&batch[i])[port.VNetHdrLen+5]) == half
		}
		rxs[half].Release(0, batch[:n])
		return mine
	}
	poison, ufo := porttest.UDPFrame(porttest.IPv4, 1300, 400)
	poison[1] = gsoUDP
	for round := range len(rxs) {
		for half := range rxs { // what earlier rounds left
			for take(half) {
			}
		}
		ufo[5] = byte(round)
		put(poison, ufo)
		for half := range rxs {
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				put(porttest.Hdr{}, to(half, 1, 60))
				if take(half) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("round %d: half %d gets nothing any more", round, half)
				}
			}
		}
		for half := range rxs {
			for take(half) {
			}
		}
		for half := range rxs {
			put(porttest.Hdr{}, to(half, 1, 60))
		}
		for half, rx := range rxs {
			n, err := rx.Receive(batch)
			if n != 1 || err != nil || int(rx.Bytes(&batch[0])[port.VNetHdrLen+5]) != half {
				t.Fatalf("round %d: half %d got %d frames, error %v", round, half, n, err)
			}
			rx.Release(0, batch[:n])
		}
	}
}
