package tap

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

func newArena(t testing.TB, n int) *port.Arena {
	t.Helper()
	a, err := port.NewArena(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// ringLen is how many frames wait in the queue of a TAP: its tx_queue_len.
func ringLen(t *testing.T, d *device) (n int) {
	t.Helper()
	err := d.onLink(func(l netlink.Link) error { n = l.Attrs().TxQLen; return nil })
	if err != nil || n == 0 {
		t.Fatalf("queue length %d: %v", n, err)
	}
	return n
}

// onLink runs fn on the device in its namespace.
func (d *device) onLink(fn func(netlink.Link) error) error {
	return d.ns.Do(func() error {
		l, err := netlink.LinkByName(d.name)
		if err != nil {
			return err
		}
		return fn(l)
	})
}

// overflow sends n frames more than the ring has room for and reads the others.
func overflow(t *testing.T, d *device, rx port.Rx, n int) {
	t.Helper()
	far, ring := d.far(t), ringLen(t, d)
	for i := range ring + n {
		err := far.Send(nil, numbered(0, uint32(i), 60))
		if full := errors.Is(err, unix.ENOBUFS); full != (i >= ring) || err != nil && !full {
			t.Fatalf("frame %d into a ring of %d: %v", i, ring, err)
		}
	}
	b := make([]port.Frame, port.MaxBatch)
	for want := uint32(0); want < uint32(ring); {
		k, err := rx.Receive(b)
		if err != nil || k == 0 {
			t.Fatalf("received %d of %d frames: %v", want, ring, err)
		}
		for i := range b[:k] {
			if _, seq := numberOf(rx.Bytes(&b[i])[port.VNetHdrLen:]); seq != want {
				t.Fatalf("frame %d came, want %d", seq, want)
			}
			want++
		}
		rx.Release(0, b[:k])
	}
}

// Stats counts what found no room in the ring: not what was lost before the port was
// opened, and also when the device has got another name or namespace.
func TestStats(t *testing.T) {
	d := newTAP(t, "tap0", 1500)
	w := port.Worker{Arena: newArena(t, port.MaxBatch)}
	first, _ := d.open(t, w, 1500)
	overflow(t, d, first, 3)
	rx, _ := d.open(t, w, 1500)
	want := uint64(0)
	check := func(what string) {
		t.Helper()
		if s := rx.Stats(); s.Drops[port.RxRingFull] != want || s.Drops.Total() != want {
			t.Errorf("%s: drops %v, want %d rx_ring_full", what, s.Drops, want)
		}
	}
	check("opened after a loss")
	step := func(what string, change func() error) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		porttest.WaitRunning(t, d.ns, d.name)
		overflow(t, d, rx, 7)
		want += 7
		check(what)
	}
	step("overflow", func() error { return nil })
	step("renamed", func() error {
		err := d.onLink(func(l netlink.Link) error {
			return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "renamed"), netlink.LinkSetUp(l))
		})
		d.name = "renamed"
		return err
	})
	step("moved", func() error {
		to := porttest.NewNS(t)
		err := d.onLink(func(l netlink.Link) error { return netlink.LinkSetNsFd(l, to.FD()) })
		d.ns = to
		return errors.Join(err, porttest.SetLink(to, d.name, true))
	})
	if err := d.onLink(netlink.LinkDel); err != nil {
		t.Fatal(err)
	}
	check("deleted")
	if err := rx.Close(); err != nil {
		t.Error(err)
	}
	check("closed")
}

// A link that is down is silent: Receive has nothing, and the descriptor doesn't keep
// waking its reader. A deleted one wakes it once, for ErrGone.
func TestQuietStates(t *testing.T) {
	d := newTAP(t, "tap0", 1500)
	rx, _ := d.open(t, port.Worker{Arena: newArena(t, 1)}, 1500)
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, rx.FD(), &ev); err != nil {
		t.Fatal(err)
	}
	b := make([]port.Frame, 4)
	events := func(wait time.Duration) (n int) {
		t.Helper()
		for end := time.Now().Add(wait); time.Now().Before(end); {
			k, err := unix.EpollWait(epfd, []unix.EpollEvent{{}}, 1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			n += max(k, 0)
		}
		return n
	}
	if err := porttest.SetLink(d.ns, d.name, false); err != nil {
		t.Fatal(err)
	}
	if n := events(20 * time.Millisecond); n > 1 {
		t.Errorf("%d events of a link that went down, want one at most", n)
	}
	if n, err := rx.Receive(b); n != 0 || err != nil {
		t.Errorf("receive from a link that is down: %d frames, %v", n, err)
	}
	if err := d.onLink(netlink.LinkDel); err != nil {
		t.Fatal(err)
	}
	if n := events(20 * time.Millisecond); n < 1 || n > 2 {
		t.Errorf("%d events of a deleted interface, want one or two", n)
	}
	if n, err := rx.Receive(b); n != 0 || !errors.Is(err, port.ErrGone) {
		t.Errorf("receive from a deleted interface: %d frames, %v", n, err)
	}
}

// A device that was deleted while all buffers were held says ErrGone, not ErrNoBuffer for ever.
func TestGoneWithoutBuffers(t *testing.T) {
	d := newTAP(t, "tap0", 1500)
	rx, _ := d.open(t, port.Worker{Arena: newArena(t, 2)}, 1500)
	far := d.far(t)
	for i := range uint32(2) {
		if err := far.Send(nil, numbered(0, i, 60)); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]port.Frame, 4)
	n, err := rx.Receive(b)
	if n != 2 || err != nil {
		t.Fatalf("received %d frames, %v, want 2 and nothing that waits", n, err)
	}
	defer rx.Release(0, b[:n])
	if err := far.Send(nil, numbered(0, 2, 60)); err != nil {
		t.Fatal(err)
	}
	if n, err := rx.Receive(b[2:]); n != 0 || !errors.Is(err, port.ErrNoBuffer) {
		t.Errorf("received %d frames without a buffer, %v", n, err)
	}
	if err := d.onLink(netlink.LinkDel); err != nil {
		t.Fatal(err)
	}
	if n, err := rx.Receive(b[2:]); n != 0 || !errors.Is(err, port.ErrGone) {
		t.Errorf("received %d frames of a deleted interface without a buffer, %v", n, err)
	}
}

// The ports hold the device: it lives on when the caller has closed the queue, and goes with
// the last of them.
func TestPortsHoldTheDevice(t *testing.T) {
	d := newTAP(t, "tap0", 1500)
	rx, tx := d.open(t, port.Worker{Arena: newArena(t, 4)}, 1500)
	if err := unix.Close(d.fd); err != nil {
		t.Fatal(err)
	}
	d.fd = -1
	far := d.far(t)
	if err := far.Send(nil, numbered(0, 1, 60)); err != nil {
		t.Fatal(err)
	}
	b := make([]port.Frame, 4)
	n, err := rx.Receive(b)
	if n != 1 || err != nil {
		t.Fatalf("received %d frames, %v", n, err)
	}
	var got port.Tally
	if tx.Send(rx, b[:n], &got); got.Frames != 1 {
		t.Errorf("sent %+v", got)
	}
	for i, h := range []interface{ Close() error }{rx, tx} {
		if err := d.onLink(func(netlink.Link) error { return nil }); err != nil {
			t.Errorf("before closing half %d: %v", i, err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	err = d.onLink(func(netlink.Link) error { return nil })
	if !errors.As(err, new(netlink.LinkNotFoundError)) {
		t.Errorf("after closing both halves the device is there: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	const good = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	ns := porttest.NewNS(t)
	for i, c := range []struct {
		name   string
		flags  uint16
		hdr    int
		blocks bool
	}{
		{"tun", unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR, 10, false},
		{"no virtio_net_hdr", unix.IFF_TAP | unix.IFF_NO_PI, 10, false},
		{"long virtio_net_hdr", good, 12, false},
		{"blocking", good, 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fd int
			if err := ns.Do(func() (err error) { fd, err = openQueue(fmt.Sprintf("tap%d", i), c.flags, c.hdr); return err }); err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.SetNonblock(fd, !c.blocks); err != nil {
				t.Fatal(err)
			}
			if _, err := New(fd, 1500); err == nil {
				t.Error("taken as a queue")
			}
		})
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	for _, fd := range []int{p[0], -1} {
		if _, err := New(fd, 1500); err == nil {
			t.Errorf("descriptor %d is no TAP, but taken as a queue", fd)
		}
	}
}
