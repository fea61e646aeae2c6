package porttest

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// patience is how long anything may take on a loaded machine.
const patience = 10 * time.Second

// lab is one Rig in the hands of one case, with the counts of what passed through.
type lab struct {
	*Rig
	caps  Caps
	batch []port.Frame
	sent  map[*End]uint64      // frames injected at the end's far side
	rx    map[*End]uint64      // frames its Rx returned
	tally map[*End]*port.Tally // what its Tx made of frames
	gone  bool                 // the halves are closed already
	flaps bool                 // the link is set down and up: ErrDown may come late
}

func newLab(t *testing.T, c Caps, open Factory) *lab {
	t.Helper()
	pin(t)
	r := open(t)
	l := &lab{
		Rig: r, caps: c, batch: make([]port.Frame, port.MaxBatch),
		sent:  map[*End]uint64{},
		rx:    map[*End]uint64{},
		tally: map[*End]*port.Tally{&r.A: {}, &r.B: {}},
	}
	t.Cleanup(func() { l.close(t) })
	return l
}

// pin keeps the test on one thread and that on one CPU, as a worker is: the
// order of frames depends on it. The thread ends with the test.
func pin(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatalf("read affinity: %v", err)
	}
	for i := 0; ; i++ {
		if allowed.IsSet(i) {
			one.Set(i)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatalf("pin thread: %v", err)
	}
}

// close closes all halves and checks that nothing is held any more.
func (l *lab) close(t *testing.T) {
	t.Helper()
	if l.gone {
		return
	}
	l.gone = true
	for _, e := range []*End{&l.A, &l.B} {
		if q := e.Tx.Queued(); q != 0 && !t.Failed() {
			// A port may send asynchronously, but not for ever.
			waitUntil(t, "queued frames to leave", func() bool { return e.Tx.Queued() == 0 })
		}
	}
	if n := l.Arena.InUse(); n != 0 && !t.Failed() {
		t.Errorf("%d arena buffers are still in use", n)
	}
	for _, e := range []*End{&l.A, &l.B} {
		if err := errors.Join(e.Tx.Close(), e.Rx.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func waitUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// inject sends one frame into e from its far side, and insists.
func (l *lab) inject(t *testing.T, e *End, h *Hdr, frame []byte) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		err := e.Far.Send(h, frame)
		if err == nil {
			l.sent[e]++
			return
		}
		if !errors.Is(err, unix.ENOBUFS) || time.Now().After(end) {
			t.Fatalf("inject %d bytes: %v", len(frame), err)
		}
		runtime.Gosched()
	}
}

// receive returns what is there at e, at most len(l.batch).
func (l *lab) receive(t *testing.T, e *End) []port.Frame {
	t.Helper()
	n, err := e.Rx.Receive(l.batch)
	if err != nil && !errors.Is(err, port.ErrNoBuffer) && !(l.flaps && errors.Is(err, port.ErrDown)) {
		t.Fatalf("receive: %v", err)
	}
	if n > len(l.batch) {
		t.Fatalf("receive returned %d frames into %d", n, len(l.batch))
	}
	l.rx[e] += uint64(n)
	return l.batch[:n]
}

// forward moves what is there at from to the Tx of to, and returns how much it was.
func (l *lab) forward(t *testing.T, from, to *End) int {
	t.Helper()
	b := l.receive(t, from)
	if len(b) > 0 {
		to.Tx.Send(from.Rx, b, l.tally[to])
	}
	return len(b)
}

// forwardAll forwards until everything injected at from was received or lost in front of it.
func (l *lab) forwardAll(t *testing.T, from, to *End) {
	t.Helper()
	l.drain(t, from, func() { l.forward(t, from, to) })
}

// drain calls turn until everything injected at e was received or counted as lost.
func (l *lab) drain(t *testing.T, e *End, turn func()) {
	t.Helper()
	for end := time.Now().Add(patience); l.arrived(e) < l.sent[e]; {
		turn()
		if time.Now().After(end) {
			t.Fatalf("%d frames injected, only %d received and %v lost",
				l.sent[e], l.rx[e], e.Rx.Stats().Drops)
		}
	}
	turn()
	if got := l.arrived(e); got != l.sent[e] {
		t.Fatalf("%d frames injected, but %d received or lost", l.sent[e], got)
	}
}

func (l *lab) arrived(e *End) uint64 { return l.rx[e] + lost(e) }

// lost is the number of frames that were lost in front of e's Receive.
func lost(e *End) uint64 {
	s := e.Rx.Stats()
	return s.Drops.Total()
}

// expect takes the next frame at e's far side, which must come.
// borrowed: valid until the next Recv.
func (l *lab) expect(t *testing.T, e *End) (Hdr, []byte) {
	t.Helper()
	h, f, err := e.Far.Recv(patience)
	if err != nil || f == nil {
		t.Fatalf("no frame came out within %v: %v", patience, err)
	}
	return h, f
}

// expectNone checks that nothing more comes out at e's far side.
func (l *lab) expectNone(t *testing.T, e *End) {
	t.Helper()
	if _, f, err := e.Far.Recv(time.Millisecond); f != nil || err != nil {
		t.Fatalf("came out: %d bytes % x…, error %v", len(f), f[:min(len(f), 20)], err)
	}
}

// sendAll sends frames from memory to e, and checks that all are released and accounted for.
func (l *lab) sendAll(t *testing.T, e *End, frames ...[]byte) port.Tally {
	t.Helper()
	var sum port.Tally
	src := NewSource(frames...)
	for b := src.Frames(); len(b) > 0; {
		n := min(len(b), port.MaxBatch)
		e.Tx.Send(src, b[:n], &sum)
		b = b[n:]
	}
	waitUntil(t, "frames to leave", func() bool { return e.Tx.Queued() == 0 })
	if err := src.Check(); err != nil {
		t.Error(err)
	}
	if got := sum.Frames + sum.Drops.Total(); got != uint64(len(frames)) {
		t.Fatalf("sent %d frames: %d left, drops %v", len(frames), sum.Frames, sum.Drops)
	}
	return sum
}
