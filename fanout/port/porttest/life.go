package porttest

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// testFlap: while the link is down, Receive says so or nothing, and Send drops
// and counts; after it came up everything works without being reopened.
func testFlap(t *testing.T, l *lab) {
	if l.A.SetLink == nil {
		t.Skip("this kind's link can't be set down")
	}
	l.flaps = true
	for range 12 {
		if err := l.A.SetLink(false); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if n, err := l.A.Rx.Receive(l.batch); n != 0 || (err != nil && !errors.Is(err, port.ErrDown)) {
				t.Fatalf("receive from a link that is down: %d frames, error %v", n, err)
			}
		}
		sum := l.sendAll(t, &l.A, newFrame(1, 60), newFrame(2, 1000), newFrame(3, l.caps.MaxFrame))
		if sum.Frames != 0 || sum.Drops[port.TxLinkDown] != 3 {
			t.Fatalf("sent to a link that is down: %d left, drops %v; want 3 tx_link_down", sum.Frames, sum.Drops)
		}
		if err := l.A.SetLink(true); err != nil {
			t.Fatal(err)
		}
		l.revive(t, &l.A, &l.B)
		l.revive(t, &l.B, &l.A)
		for i := range uint32(20) {
			l.cross(t, &l.A, &l.B, nil, newFrame(i, 100), "after the link came back")
		}
		l.cross(t, &l.B, &l.A, nil, newFrame(9, 100), "after the link came back")
	}
}

// revive sends frames until one crosses, then takes all that were on their way.
// It starts the counts afresh.
func (l *lab) revive(t *testing.T, from, to *End) {
	t.Helper()
	const last = 1 << 30
	seq, came := uint32(0), false
	waitUntil(t, "the link to work again", func() bool {
		_ = from.Far.Send(nil, newFrame(seq, 60))
		seq++
		l.takeQuietly(t, from, to)
		_, f, err := to.Far.Recv(time.Millisecond)
		if err != nil && !errors.Is(err, unix.ENETDOWN) {
			t.Fatal(err)
		}
		came = came || f != nil
		return came
	})
	// One frame that is known to cross flushes all before it.
	waitUntil(t, "a last frame", func() bool { return from.Far.Send(nil, newFrame(last, 60)) == nil })
	waitUntil(t, "the last frame to cross", func() bool {
		l.takeQuietly(t, from, to)
		_, f, err := to.Far.Recv(0)
		if err != nil {
			t.Fatal(err)
		}
		return f != nil && seqOf(f) == last
	})
	s := from.Rx.Stats()
	l.rx[from], l.sent[from] = 0, s.Drops.Total()
	*l.tally[to] = port.Tally{}
}

func (l *lab) takeQuietly(t *testing.T, from, to *End) {
	t.Helper()
	n, err := from.Rx.Receive(l.batch)
	if err != nil && !errors.Is(err, port.ErrDown) {
		t.Fatalf("receive: %v", err)
	}
	to.Tx.Send(from.Rx, l.batch[:n], l.tally[to])
}

// testDelete: when the interface is deleted, the port says ErrGone and drops,
// and the other end isn't touched by it.
func testDelete(t *testing.T, l *lab) {
	if l.A.Delete == nil {
		t.Skip("this kind's interface can't be deleted")
	}
	vanish(t, l, l.A.Delete)
}

// testDeleteNS: the same when the whole namespace behind it goes.
func testDeleteNS(t *testing.T, l *lab) {
	if l.A.DeleteNS == nil {
		t.Skip("this kind has no namespace behind it")
	}
	vanish(t, l, func() error { return errors.Join(l.A.Far.Close(), l.A.DeleteNS()) })
}

func vanish(t *testing.T, l *lab, fn func() error) {
	t.Helper()
	for i := range uint32(20) { // something is in the ring when it happens
		l.inject(t, &l.A, nil, newFrame(i, 60))
	}
	epfd := watch(t, l.A.Rx.FD())
	if err := fn(); err != nil {
		t.Fatal(err)
	}
	if !wait(t, epfd, patience) {
		t.Fatalf("descriptor was silent for %v after the interface was deleted", patience)
	}
	waitUntil(t, "ErrGone", func() bool {
		n, err := l.A.Rx.Receive(l.batch)
		l.B.Tx.Send(l.A.Rx, l.batch[:n], l.tally[&l.B])
		if err != nil && !errors.Is(err, port.ErrGone) && !errors.Is(err, port.ErrDown) {
			t.Fatalf("receive: %v, want ErrGone", err)
		}
		return errors.Is(err, port.ErrGone)
	})
	for range 3 {
		if n, err := l.A.Rx.Receive(l.batch); n != 0 || !errors.Is(err, port.ErrGone) {
			t.Errorf("receive after ErrGone: %d frames, error %v", n, err)
		}
	}
	_ = l.A.Rx.Stats()
	sum := l.sendAll(t, &l.A, newFrame(1, 60), newFrame(2, l.caps.MaxFrame))
	if sum.Frames != 0 || sum.Drops[port.TxGone] != 2 {
		t.Errorf("sent to a deleted interface: %d left, drops %v; want 2 tx_gone", sum.Frames, sum.Drops)
	}
	if sum := l.sendAll(t, &l.B, newFrame(3, 60)); sum.Frames != 1 {
		t.Errorf("the other end: %d left, drops %v", sum.Frames, sum.Drops)
	}
}

// testClose: closing twice is harmless, and a closed half says so.
func testClose(t *testing.T, l *lab) {
	l.cross(t, &l.A, &l.B, nil, newFrame(1, 60), "before closing")
	l.inject(t, &l.A, nil, newFrame(2, 60)) // is left in the ring
	drops := l.A.Rx.Stats()
	l.close(t)
	for range 2 {
		for _, e := range []*End{&l.A, &l.B} {
			if err := errors.Join(e.Tx.Close(), e.Rx.Close()); err != nil {
				t.Errorf("close again: %v", err)
			}
			if n, err := e.Rx.Receive(l.batch); n != 0 || !errors.Is(err, port.ErrClosed) {
				t.Errorf("receive from a closed port: %d frames, error %v", n, err)
			}
			if q := e.Tx.Queued(); q != 0 {
				t.Errorf("closed port has %d frames queued", q)
			}
		}
	}
	if s := l.A.Rx.Stats(); s != drops {
		t.Errorf("stats changed by closing from %v to %v", drops, s)
	}
}

// testAllocs: a turn of the worker allocates nothing.
func testAllocs(t *testing.T, l *lab) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	frames := [][]byte{newFrame(1, 60), newFrame(2, 1000), newFrame(3, l.caps.MaxFrame), newFrame(4, 60)}
	var wrong uint64
	turn := func() {
		want := l.rx[&l.A]
		for _, f := range frames {
			if l.A.Far.Send(nil, f) == nil {
				want++
			}
		}
		for range 1000 {
			n, err := l.A.Rx.Receive(l.batch)
			if err != nil {
				wrong++
			}
			l.B.Tx.Send(l.A.Rx, l.batch[:n], l.tally[&l.B])
			if l.rx[&l.A] += uint64(n); l.rx[&l.A] >= want {
				return
			}
		}
		wrong++
	}
	turn()
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Errorf("%v allocations per turn, want 0", n)
	}
	if wrong > lost(&l.A) {
		t.Errorf("%d turns went wrong", wrong)
	}
	if l.tally[&l.B].Frames == 0 {
		t.Error("nothing was forwarded")
	}
}

// testLeaks: opening and closing many times leaves no descriptor and no mapping behind.
func testLeaks(t *testing.T, c Caps, open Factory) {
	var before footprint
	for i := range 6 {
		t.Run("open", func(t *testing.T) {
			l := newLab(t, c, open)
			l.cross(t, &l.A, &l.B, nil, newFrame(1, 60), "one frame")
		})
		now := measure(t)
		if i == 0 {
			before = now // what the runtime keeps is there from the first time on
		} else if now.fds > before.fds || now.maps > before.maps {
			t.Fatalf("after opening %d times: %+v, after the first time: %+v", i+1, now, before)
		}
	}
}

// footprint is what a process holds of the kernel's.
type footprint struct{ fds, maps int }

func measure(t *testing.T) footprint {
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
