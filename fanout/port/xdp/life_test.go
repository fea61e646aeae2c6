package xdp

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// times is how often a long test does its thing: EPAIR_TIMES, or n.
func times(n int) int {
	if v, err := strconv.Atoi(os.Getenv("EPAIR_TIMES")); err == nil {
		return v
	}
	return n
}

// attached tells whether an interface has an XDP program.
func attached(ns *porttest.NS, name string) bool {
	var l netlink.Link
	err := ns.Do(func() (err error) { l, err = netlink.LinkByName(name); return err })
	return err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
}

// TestOpenClose opens and closes a pair many times while frames come in at full rate. Nothing is left
// of it but the last one's frames, which are right.
func TestOpenClose(t *testing.T) {
	w := newWorld(t, 1500, 1)
	s := newStream(t, w, 0)
	s.start(t, 0)
	var before footprint
	for i := range times(20) {
		p, err := Open(w.config(PairConfig{Frames: 512}))
		if err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		r := newReader(t, p.A, p.B, 1)
		r.start(t)
		got := s.got.Load()
		s.wait(t, got+100)
		r.end(t)
		if err := p.Close(); err != nil {
			t.Fatalf("close %d: %v", i, err)
		}
		if a, b := attached(w.outer, "ao"), attached(w.outer, "bo"); a || b {
			t.Fatalf("XDP programs are left: on ao %t, on bo %t", a, b)
		}
		if now := measureFootprint(t); i == 0 {
			before = now
		} else if now.fds > before.fds || now.maps > before.maps {
			t.Fatalf("after %d times: %+v, after the first: %+v", i+1, now, before)
		}
	}
	s.end(t)
}

// TestFlapsUnderLoad: all devices go down and up while frames flow. What is
// received is sent or counted, what comes is right, and afterwards all flows as before.
func TestFlapsUnderLoad(t *testing.T) {
	w := newWorld(t, 1500, 2)
	p := w.open(t, PairConfig{Workers: 2})
	r := newReader(t, p.A, p.B, 2)
	r.rx = &flapping{r.rx}
	s := newStream(t, w, 0)
	r.start(t)
	s.start(t, 0)
	for i := range times(12) {
		v := w.veth[i/2%2]
		ns, name := v.OuterNS, v.Outer
		if i%2 == 0 {
			ns, name = v.InnerNS, v.Inner
		}
		if err := porttest.SetLink(ns, name, false); err != nil {
			t.Fatal(err)
		}
		meets := &s.lost // frames stop here if nothing gets into a
		if v == w.veth[1] {
			meets = &r.rxed
		}
		n := meets.Load()
		waitFor(t, "frames to meet "+name, func() bool { return meets.Load() > n+500 })
		if err := porttest.SetLink(ns, name, true); err != nil {
			t.Fatal(err)
		}
		s.wait(t, s.got.Load()+2000)
	}
	s.end(t)
	_, sum := r.end(t)
	if n := uint64(times(12)) / 4 * 500; sum.Drops[port.TxLinkDown] < n {
		t.Errorf("%+v, want at least %d tx_link_down", sum, n)
	}
}

// flapping is an Rx whose interface may be down.
type flapping struct{ port.Rx }

func (f *flapping) Receive(b []port.Frame) (int, error) {
	n, err := f.Rx.Receive(b)
	if errors.Is(err, port.ErrDown) {
		err = nil
	}
	return n, err
}

// TestEvents: an idle port's descriptor tells that the interface went down, and that it is gone.
func TestEvents(t *testing.T) {
	for _, queues := range []int{1, 3} {
		w := newWorld(t, 1500, queues)
		p := w.open(t, PairConfig{})
		rx, _ := halves(t, p.A)
		epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(epfd)
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
		if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, rx.FD(), &ev); err != nil {
			t.Fatal(err)
		}
		var b [port.MaxBatch]port.Frame
		expect := func(want error) {
			t.Helper()
			var got error
			waitFor(t, want.Error(), func() bool {
				var ev [1]unix.EpollEvent
				if n, _ := unix.EpollWait(epfd, ev[:], 1000); n == 0 {
					t.Fatalf("no event, last error %v, want %v", got, want)
				}
				_, got = rx.Receive(b[:])
				return errors.Is(got, want)
			})
		}
		for range 3 {
			if err := porttest.SetLink(w.outer, "ao", false); err != nil {
				t.Fatal(err)
			}
			expect(port.ErrDown)
			if err := porttest.SetLink(w.outer, "ao", true); err != nil {
				t.Fatal(err)
			}
		}
		if err := porttest.DeleteLink(w.outer, "ao"); err != nil {
			t.Fatal(err)
		}
		expect(port.ErrGone)
	}
}

// TestGoneWhileDown: it is told also if the interface was down before, as a deleted one is.
func TestGoneWhileDown(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{})
	rx, _ := halves(t, p.A)
	if err := porttest.SetLink(w.outer, "ao", false); err != nil {
		t.Fatal(err)
	}
	var b [port.MaxBatch]port.Frame
	if _, err := rx.Receive(b[:]); !errors.Is(err, port.ErrDown) {
		t.Fatalf("receive: %v", err)
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	evs := make([]unix.EpollEvent, 1)
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, rx.FD(), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n > 0; { // what is ready now is told once
		n, _ = unix.EpollWait(epfd, evs, 0)
	}
	if err := porttest.DeleteLink(w.outer, "ao"); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.EpollWait(epfd, evs, int(patience/time.Millisecond)); n != 1 {
		t.Fatalf("%d events, error %v", n, err)
	}
	waitFor(t, "ErrGone", func() bool { _, err := rx.Receive(b[:]); return errors.Is(err, port.ErrGone) })
}

// TestKilled: when the process is killed, its program goes, and the queues can be bound again at once.
func TestKilled(t *testing.T) {
	if os.Getenv("EPAIR_VICTIM") != "" {
		victim()
	}
	w := newWorld(t, 1500, 1)
	for range 3 {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestKilled$")
		cmd.Env = append(os.Environ(), "EPAIR_VICTIM="+strconv.Itoa(w.veth[0].OuterIndex)+"")
		cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, w.outer.FD())), "netns")}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles[0].Close()
		waitFor(t, "the victim to attach", func() bool { return attached(w.outer, "ao") })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its state is that it was killed
		waitFor(t, "the program to go", func() bool { return !attached(w.outer, "ao") })
		p, err := Open(w.config(PairConfig{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// victim opens the interface of EPAIR_VICTIM in the namespace of descriptor 3 and waits for its end.
func victim() {
	ifindex, _ := strconv.Atoi(os.Getenv("EPAIR_VICTIM"))
	if _, err := Open(PairConfig{A: EndConfig{NetNS: 3, Ifindex: ifindex}}); err != nil {
		panic(err)
	}
	time.Sleep(patience) // and killed before
	os.Exit(1)
}
