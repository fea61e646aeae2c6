package tap

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// placer returns an End's attach whose program is body.
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
		return unix.IoctlSetPointerInt(fd, unix.TUNSETSTEERINGEBPF, prog.FD())
	}
}

// byWriter places a frame by numbered's writer.
func byWriter(t testing.TB) func(fd int) error {
	return placer(t, asm.Mov.Reg(asm.R6, asm.R1), asm.LoadAbs(1, asm.Byte))
}

func (d *device) spread(t testing.TB, mtu int, attach func(int) error) *End {
	t.Helper()
	e, err := New(d.fd, mtu)
	if err == nil {
		err = e.AddQueues(d.more, attach)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func halves(t testing.TB, e *End, n int, w port.Worker) (rxs []*Rx) {
	t.Helper()
	if e.Spread(n) != port.Loose {
		t.Fatal("frames aren't spread")
	}
	for range n {
		rx, err := e.OpenRx(w)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { rx.Close() })
		rxs = append(rxs, rx.(*Rx))
	}
	return rxs
}

// TestSpreadPort: each half is a port like any other.
func TestSpreadPort(t *testing.T) {
	const mtu = 1500
	caps := porttest.Caps{MaxFrame: mtu + 14, Ring: 512, GSO: true, Arena: true}
	porttest.Run(t, caps, func(t *testing.T) *porttest.Rig {
		r := &porttest.Rig{Arena: newArena(t, port.MaxBatch)}
		w := port.Worker{Arena: r.Arena}
		r.B = newRigEnd(t, r.Arena, mtu)
		d := newQueues(t, "tap0", mtu, 2)
		e := d.spread(t, mtu, placer(t, asm.Mov.Imm(asm.R0, 1)))
		r.A = d.rigEnd(t)
		var err error
		if r.A.Tx, err = e.OpenTx(w); err != nil {
			t.Fatal(err)
		}
		r.A.Rx = porttest.OpenSpread(t, e, 2, w)
		return r
	})
}

// place sends a frame for each half and checks that it comes there, and nowhere else.
func place(t *testing.T, far *porttest.PacketFar, rxs []*Rx) {
	t.Helper()
	for i := range rxs {
		if err := far.Send(nil, numbered(byte(i), 7, 60)); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]port.Frame, port.MaxBatch)
	for i, rx := range rxs {
		n, err := rx.Receive(b)
		if n != 1 || err != nil {
			t.Fatalf("half %d got %d frames, error %v", i, n, err)
		}
		if w, _ := numberOf(rx.Bytes(&b[0])[port.VNetHdrLen:]); int(w) != i {
			t.Fatalf("half %d got a frame of half %d", i, w)
		}
		rx.Release(0, b[:n])
		if s := rx.Stats(); s.Drops.Total() != 0 {
			t.Errorf("half %d: drops %v", i, s.Drops)
		}
	}
}

// TestSpread: each half gets its frames, from the first one on and however often the
// link flaps; closed halves can be opened again, fewer too.
func TestSpread(t *testing.T) {
	d := newQueues(t, "tap0", 1500, 4)
	w := port.Worker{Arena: newArena(t, port.MaxBatch)}
	far := d.far(t)
	e := d.spread(t, 1500, byWriter(t))
	for _, n := range []int{4, 2, 3} {
		rxs := halves(t, e, n, w)
		for range 4 {
			place(t, far, rxs)
			for _, up := range []bool{false, true} {
				if err := porttest.SetLink(d.ns, d.name, up); err != nil {
					t.Fatal(err)
				}
			}
			porttest.WaitRunning(t, d.ns, d.name)
		}
		place(t, far, rxs)
		for _, rx := range rxs {
			if err := rx.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e.Spread(1) != port.Single || e.Spread(5) != port.Single {
		t.Error("spread over one queue, or more than there are")
	}
	rx, err := e.OpenRx(w)
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	for i := range byte(4) {
		if err := far.Send(nil, numbered(i, 1, 60)); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]port.Frame, port.MaxBatch)
	if n, err := rx.Receive(b); n != 4 || err != nil {
		t.Errorf("the only half got %d frames, error %v", n, err)
	} else {
		rx.Release(0, b[:n])
	}
}

// TestSpreadWhileFramesCome: what was in queues before the last was attached is lost, and counted,
// and each half gets none but its frames.
func TestSpreadWhileFramesCome(t *testing.T) {
	d := newQueues(t, "tap0", 1500, 3)
	w := port.Worker{Arena: newArena(t, 4*port.MaxBatch)}
	far := d.far(t)
	e := d.spread(t, 1500, byWriter(t))
	send := func(n int) {
		for i := range n {
			if err := far.Send(nil, numbered(byte(i%3), 1, 60)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(9)
	if e.Spread(3) != port.Loose {
		t.Fatal("frames aren't spread")
	}
	var rxs []*Rx
	for range 3 {
		rx, err := e.OpenRx(w)
		if err != nil {
			t.Fatal(err)
		}
		defer rx.Close()
		rxs = append(rxs, rx.(*Rx))
		if len(rxs) < 3 {
			send(6)
		}
	}
	var lost uint64
	for _, rx := range rxs {
		s := rx.Stats()
		if lost += s.Drops[port.RxMisplaced]; s.Drops.Total() != s.Drops[port.RxMisplaced] {
			t.Errorf("drops %v", s.Drops)
		}
	}
	if lost != 21 {
		t.Errorf("%d frames lost, want 21", lost)
	}
	send(9)
	b := make([]port.Frame, port.MaxBatch)
	for i, rx := range rxs {
		n, err := rx.Receive(b)
		for k := range b[:n] {
			if w, _ := numberOf(rx.Bytes(&b[k])[port.VNetHdrLen:]); int(w) != i {
				t.Errorf("half %d got a frame of half %d", i, w)
			}
		}
		rx.Release(0, b[:n])
		if n != 3 || err != nil {
			t.Errorf("half %d got %d frames, error %v", i, n, err)
		}
	}
}

// TestSpreadDrops: a frame that finds its queue full is counted once.
func TestSpreadDrops(t *testing.T) {
	d := newQueues(t, "tap0", 1500, 3)
	rxs := halves(t, d.spread(t, 1500, byWriter(t)), 3, port.Worker{Arena: newArena(t, 1)})
	far, ring, want := d.far(t), ringLen(t, d), uint64(0)
	for q := range byte(3) {
		for i := range ring + 5 {
			if err := far.Send(nil, numbered(q, uint32(i), 60)); errors.Is(err, unix.ENOBUFS) {
				want++
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	var sum port.Drops
	for _, rx := range rxs {
		s := rx.Stats()
		sum.Add(&s.Drops)
	}
	if want != 15 || sum[port.RxRingFull] != want || sum.Total() != want {
		t.Errorf("%d frames found no room, drops %v", want, sum)
	}
}

// TestSpreadGone: halves of a deleted device say so, and close.
func TestSpreadGone(t *testing.T) {
	d := newQueues(t, "tap0", 1500, 2)
	rxs := halves(t, d.spread(t, 1500, byWriter(t)), 2, port.Worker{Arena: newArena(t, 1)})
	if err := porttest.DeleteLink(d.ns, d.name); err != nil {
		t.Fatal(err)
	}
	b := make([]port.Frame, 1)
	for i, rx := range rxs {
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if _, err := rx.Receive(b); errors.Is(err, port.ErrGone) {
				break
			} else if err != nil || time.Now().After(end) {
				t.Fatalf("half %d: %v", i, err)
			}
		}
		if err := errors.Join(rx.Close(), rx.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestAddQueuesRefuses(t *testing.T) {
	d := newQueues(t, "tap0", 1500, 2)
	e, err := New(d.fd, 1500)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{d.fd, -1} { // attached; none
		if err := e.AddQueues([]int{d.more[0], fd}, byWriter(t)); err == nil {
			t.Errorf("descriptor %d is taken as a further queue", fd)
		}
	}
	if e.Spread(2) != port.Single {
		t.Error("spread over a queue that was refused")
	}
	if err := e.AddQueues(d.more, func(int) error { return unix.EPERM }); err != nil {
		t.Fatal(err)
	}
	e.Spread(2)
	if _, err := e.OpenRx(port.Worker{}); !errors.Is(err, unix.EPERM) {
		t.Errorf("open without the program: %v", err)
	}
}
