package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// frame returns a frame whose last bytes are its number.
func frame(n, size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	binary.BigEndian.PutUint32(f[size-4:], uint32(n))
	return f
}

func number(f []byte) int { return int(binary.BigEndian.Uint32(f[len(f)-4:])) }

// send sends all frames of src by x in batches, and checks that each was released once.
func send(t *testing.T, x *Tx, src *porttest.Source) port.Tally {
	t.Helper()
	var sum port.Tally
	b := src.Frames()
	total := uint64(len(b))
	for len(b) > 0 {
		n := min(len(b), port.MaxBatch)
		x.Send(src, b[:n], &sum)
		b = b[n:]
	}
	if err := src.Check(); err != nil {
		t.Error(err)
	}
	if sum.Frames+sum.Drops.Total() != total {
		t.Fatalf("%d frames became %+v", total, sum)
	}
	checkIdle(t, x.s)
	return sum
}

// checkIdle checks that nothing is staged in the ring.
func checkIdle(t *testing.T, s *Sender) {
	t.Helper()
	for i := range s.ring.mask + 1 {
		if st := s.ring.hdr(i).status.Load(); st != unix.TP_STATUS_AVAILABLE && st != unix.TP_STATUS_SENDING {
			t.Fatalf("slot %d of the idle ring has status %d", i, st)
		}
	}
}

// tapDevice makes a TAP interface in ns whose queue takes slots frames that nobody reads,
// a far side that is full exactly when it should be.
func tapDevice(t *testing.T, ns *porttest.NS, name string, slots int) (fd, ifindex int) {
	t.Helper()
	err := ns.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return err
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		ifindex = l.Attrs().Index
		if err := netlink.LinkSetTxQLen(l, slots); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
	if errors.Is(err, os.ErrNotExist) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip("/dev/net/tun isn't there")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd, ifindex
}

// drainTap reads what is in the TAP's queue.
func drainTap(t *testing.T, fd int) (numbers []int) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return numbers
		}
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, number(buf[:n]))
	}
}

// TestFullQueue: the tally says exactly which frames a full far queue took, and they
// are the first ones, in order.
func TestFullQueue(t *testing.T) {
	w := newWorld(t, 1500, 4)
	fd, ifindex := tapDevice(t, w.outer, "full", 24)
	s := w.sender(t)
	x, err := s.Tx(ifindex, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 40 {
		var frames [][]byte
		for i := range 64 {
			frames = append(frames, frame(100*round+i, 60+(i*round)%1400))
		}
		sum := send(t, x, porttest.NewSource(frames...))
		got := drainTap(t, fd)
		if sum.Frames != 24 || sum.Drops[port.TxBusy] != 40 {
			t.Fatalf("round %d: sent %+v, want 24 frames and 40 tx_busy", round, sum)
		}
		for i, n := range got {
			if n != 100*round+i || len(got) != 24 {
				t.Fatalf("round %d: the far side got %v", round, got)
			}
		}
	}
	// The ring works on, also for another interface.
	if sum := send(t, w.tx(t, s, w.b), porttest.NewSource(frame(1, 60), frame(2, 60))); sum.Frames != 2 {
		t.Fatalf("after a full queue: %+v", sum)
	}
}

// TestSlowQueue: while the far side empties its queue, what it gets is exactly what the tally says.
func TestSlowQueue(t *testing.T) {
	w := newWorld(t, 1500, 4)
	fd, ifindex := tapDevice(t, w.outer, "slow", 16)
	x, err := w.sender(t).Tx(ifindex, w.worker())
	if err != nil {
		t.Fatal(err)
	}
	stop, got := make(chan struct{}), make(chan []int, 1)
	go func() {
		var all []int
		for {
			select {
			case <-stop:
				got <- append(all, drainTap(t, fd)...)
				return
			default:
				all = append(all, drainTap(t, fd)...)
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	var sum port.Tally
	for round := range 300 {
		var frames [][]byte
		for i := range 1 + round%64 {
			frames = append(frames, frame(64*round+i, []int{60, 200, 1500, 700}[i%4]))
		}
		one := send(t, x, porttest.NewSource(frames...))
		sum.Frames += one.Frames
		sum.Drops.Add(&one.Drops)
	}
	close(stop)
	all := <-got
	if uint64(len(all)) != sum.Frames {
		t.Errorf("the far side got %d frames, the tally says %+v", len(all), sum)
	}
	for i := 1; i < len(all); i++ {
		if all[i] <= all[i-1] {
			t.Fatalf("frame %d came after %d", all[i], all[i-1])
		}
	}
}

// TestRefusedFrames: a frame with an impossible virtio_net_hdr is dropped alone.
func TestRefusedFrames(t *testing.T) {
	w := newWorld(t, 9000, 4)
	s := w.sender(t)
	x, far := w.tx(t, s, w.b), w.far(t, w.b)
	const n = 40
	for _, size := range []int{100, 3000} { // by the ring, by the second socket
		var frames [][]byte
		for i := range n {
			frames = append(frames, frame(i, size))
		}
		src := porttest.NewSource(frames...)
		bad := porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, 60000, 16)
		var want []int
		for i := range n {
			if i%3 == 0 || i == n-1 {
				src.SetHdr(i, bad)
			} else {
				want = append(want, i)
			}
		}
		sum := send(t, x, src)
		if sum.Frames != uint64(len(want)) || sum.Drops[port.TxInvalid] != uint64(n-len(want)) {
			t.Fatalf("%d bytes: %+v, want %d frames and %d tx_invalid", size, sum, len(want), n-len(want))
		}
		expect(t, far, want)
	}
}

// expect checks that just these frames came out.
func expect(t *testing.T, far *porttest.PacketFar, want []int) {
	t.Helper()
	for _, n := range want {
		_, f, err := far.Recv(10 * time.Second)
		if err != nil || f == nil || number(f) != n {
			t.Fatalf("frame %d: came % x, error %v", n, f, err)
		}
	}
	if _, f, err := far.Recv(time.Millisecond); f != nil || err != nil {
		t.Fatalf("came too: % x, error %v", f, err)
	}
}

// TestFullRing: slots that the kernel still has are not overwritten, and what
// finds no slot is counted.
func TestFullRing(t *testing.T) {
	w := newWorld(t, 1500, 4)
	s, err := OpenSender(SenderConfig{NetNS: w.outer.FD(), Slots: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, far := w.tx(t, s, w.b), w.far(t, w.b)
	var frames [][]byte
	for i := range 40 {
		frames = append(frames, frame(i, 60))
	}
	if sum := send(t, x, porttest.NewSource(frames...)); sum.Frames != 40 {
		t.Fatalf("a ring smaller than the batch: %+v", sum)
	}
	expect(t, far, counting(0, 40))
	// As a network card does that hasn't sent them yet:
	for i := range uint32(20) {
		s.ring.hdr(s.head + 12 + i).status.Store(unix.TP_STATUS_SENDING)
	}
	if sum := send(t, x, porttest.NewSource(frames...)); sum.Frames != 12 || sum.Drops[port.TxRingFull] != 28 {
		t.Fatalf("12 free slots: %+v, want 12 frames and 28 tx_ring_full", sum)
	}
	expect(t, far, counting(0, 12))
	for i := range s.ring.mask + 1 {
		s.ring.hdr(i).status.CompareAndSwap(unix.TP_STATUS_SENDING, unix.TP_STATUS_AVAILABLE)
	}
	if sum := send(t, x, porttest.NewSource(frames...)); sum.Frames != 40 {
		t.Fatalf("after the slots came back: %+v", sum)
	}
	expect(t, far, counting(0, 40))
}

func counting(from, to int) (n []int) {
	for i := from; i < to; i++ {
		n = append(n, i)
	}
	return n
}

// TestTruncated: without room in the receive buffer, long frames are lost and
// counted, and the others aren't.
func TestTruncated(t *testing.T) {
	w := newWorld(t, 9000, 64)
	rx, far := w.rx(t, w.a, 512), w.far(t, w.a)
	if err := unix.SetsockoptInt(rx.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 40_000); err != nil {
		t.Fatal(err)
	}
	const n = 100
	for i := range n {
		if err := far.Send(nil, frame(i, []int{60, 5000}[i%2])); err != nil {
			t.Fatal(err)
		}
	}
	batch := make([]port.Frame, port.MaxBatch)
	short, long, last := 0, 0, -1
	var drops uint64
	for end := time.Now().Add(10 * time.Second); uint64(short+long)+drops < n && time.Now().Before(end); {
		got, err := rx.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch[:got] {
			f := rx.Bytes(&batch[i])[port.VNetHdrLen:]
			if i := number(f); i <= last || !bytes.Equal(f, frame(i, []int{60, 5000}[i%2])) {
				t.Fatalf("frame %d after %d", i, last)
			}
			if last = number(f); len(f) == 60 {
				short++
			} else {
				long++
			}
		}
		rx.Release(0, batch[:got])
		s := rx.Stats()
		drops = s.Drops[port.RxTruncated]
	}
	if short != n/2 || long == 0 || drops == 0 || uint64(long)+drops != n/2 {
		t.Errorf("of %d short and %d long frames came %d and %d, %d truncated", n/2, n/2, short, long, drops)
	}
}

// TestNoCarrier: frames for a veth whose other side is down are dropped for that reason.
func TestNoCarrier(t *testing.T) {
	w := newWorld(t, 1500, 4)
	x := w.tx(t, w.sender(t), w.b)
	if err := porttest.SetLink(w.b.InnerNS, w.b.Inner, false); err != nil {
		t.Fatal(err)
	}
	// The kernel shows the lost carrier a little later than it acts on it.
	for end := time.Now().Add(10 * time.Second); ; {
		sum := send(t, x, porttest.NewSource(frame(1, 60), frame(2, 1500), frame(3, 60)))
		if sum.Drops[port.TxLinkDown] == 3 {
			break
		}
		if sum.Frames != 0 || time.Now().After(end) {
			t.Fatalf("no carrier: %+v, want 3 tx_link_down", sum)
		}
	}
	if err := porttest.SetLink(w.b.InnerNS, w.b.Inner, true); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if sum := send(t, x, porttest.NewSource(frame(1, 60), frame(2, 1500))); sum.Frames == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing leaves after the carrier came back")
		}
	}
}

// TestOneSenderTwoInterfaces: the kernel takes the interface from each call's address.
func TestOneSenderTwoInterfaces(t *testing.T) {
	w := newWorld(t, 1500, 4)
	s := w.sender(t)
	for round := range 20 {
		for i, v := range []*porttest.Veth{w.a, w.b} {
			n := 100*round + i
			far := w.far(t, v)
			if sum := send(t, w.tx(t, s, v), porttest.NewSource(frame(n, 60), frame(n+10, 1514), frame(n+20, 100))); sum.Frames != 3 {
				t.Fatalf("interface %d: %+v", i, sum)
			}
			expect(t, far, []int{n, n + 10, n + 20})
			_ = far.Close()
		}
	}
	if err := porttest.DeleteLink(w.outer, w.a.Outer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tx(w.a.OuterIndex, w.worker()); !errors.Is(err, port.ErrGone) {
		t.Errorf("open what was deleted: %v, want ErrGone", err)
	}
	if sum := send(t, w.tx(t, s, w.b), porttest.NewSource(frame(1, 60))); sum.Frames != 1 {
		t.Errorf("the other interface: %+v", sum)
	}
}

// TestPlainSource: frames of a port that has no virtio_net_hdr get an empty one.
func TestPlainSource(t *testing.T) {
	w := newWorld(t, 9000, 4)
	x, far := w.tx(t, w.sender(t), w.b), w.far(t, w.b)
	src := plainSource{frame(0, 60), frame(1, 1500), frame(2, 5000), frame(3, 2000), frame(4, 2010)}
	b := make([]port.Frame, len(src))
	for i := range src {
		b[i] = port.Frame{Len: uint32(len(src[i])), Slot: uint32(i)}
	}
	var sum port.Tally
	x.Send(src, b, &sum)
	if sum.Frames != 5 {
		t.Fatalf("sent %+v", sum)
	}
	for i := range src {
		h, f, err := far.Recv(10 * time.Second)
		if err != nil || !bytes.Equal(f, src[i]) || h.Flags() != 0 || h.GSOType() != 0 {
			t.Fatalf("frame %d: %d bytes, header % x, error %v", i, len(f), h, err)
		}
	}
}

type plainSource [][]byte

func (s plainSource) Bytes(f *port.Frame) []byte { return s[f.Slot] }
func (plainSource) Release(int, []port.Frame)    {}

// TestSoftwareSegmentation: what the far side doesn't take whole, the kernel
// segments, and after a while the far side is asked again.
func TestSoftwareSegmentation(t *testing.T) {
	w := newWorld(t, 1500, 4)
	x, far := w.tx(t, w.sender(t), w.b), w.far(t, w.b)
	attachPass(t, w.b)
	for i := range softRun + 2 {
		h, f := porttest.TCPFrame(porttest.IPv4, 20000, 1400, 0)
		src := porttest.NewSource(frame(1, 60), f, frame(2, 60))
		src.SetHdr(1, h)
		if sum := send(t, x, src); sum.Frames != 3 {
			t.Fatalf("frame %d: %+v", i, sum)
		}
		payload := 0
		for {
			_, f, err := far.Recv(10 * time.Second)
			if err != nil || f == nil || len(f) > 1514 {
				t.Fatalf("frame %d: came %d bytes, error %v", i, len(f), err)
			}
			if len(f) > 60 {
				payload += len(f) - 54
			} else if number(f) == 2 {
				break
			}
		}
		if payload != 20000-54 {
			t.Fatalf("frame %d: %d bytes of payload came", i, payload)
		}
	}
}

// TestOpenErrors: what can't be opened says what, and leaves nothing open.
func TestOpenErrors(t *testing.T) {
	w := newWorld(t, 1500, 4)
	for _, c := range []struct {
		cfg  RxConfig
		want string
	}{
		{RxConfig{Ifindex: 9999}, "receive from interface 9999: bind packet socket: no such device"},
		{RxConfig{Ifindex: 1, Slots: 1000}, "make a ring of 1000 slots: not a power of two"},
		{RxConfig{Ifindex: 1, SlotLen: 100}, "make a ring of slots of 100 bytes: not a power of two from 256 to 65536"},
	} {
		c.cfg.NetNS = w.outer.FD()
		if _, err := OpenRx(c.cfg, w.worker()); fmt.Sprint(err) != c.want {
			t.Errorf("open %+v:\n got %v\nwant %s", c.cfg, err, c.want)
		}
	}
	if _, err := OpenSender(SenderConfig{Slots: 3}); err == nil {
		t.Error("a sender with 3 slots was opened")
	}
}
