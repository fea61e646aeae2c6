package porttest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// joined is the receiving halves of one end as if they were one, for a suite that plays a
// single worker. Between frames of different halves there is no order.
type joined struct {
	rxs  []port.Rx
	epfd int
}

// halfShift is where in a joined frame's Slot the number of its half is.
const halfShift = 28

// OpenSpread opens n receiving halves of an end for w and joins them.
func OpenSpread(t testing.TB, o port.Spreader, n int, w port.Worker) port.Rx {
	t.Helper()
	if o.Spread(n) == port.Single {
		t.Fatal("the end doesn't spread its frames")
	}
	j := &joined{}
	for range n {
		rx, err := o.OpenRx(w)
		if err != nil {
			t.Fatalf("open half %d: %v", len(j.rxs), err)
		}
		t.Cleanup(func() { _ = rx.Close() })
		j.rxs = append(j.rxs, rx)
	}
	var err error
	if j.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(j.epfd) })
	for _, rx := range j.rxs {
		ev := unix.EpollEvent{Events: unix.EPOLLIN}
		if err := unix.EpollCtl(j.epfd, unix.EPOLL_CTL_ADD, rx.FD(), &ev); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func (j *joined) FD() int { return j.epfd }

func (j *joined) Receive(b []port.Frame) (int, error) {
	n := 0
	var all error
	for i, rx := range j.rxs {
		got, err := rx.Receive(b[n:])
		for k := range b[n : n+got] {
			b[n+k].Slot |= uint32(i) << halfShift
		}
		n += got
		switch {
		case err == nil:
		case errors.Is(err, port.ErrClosed):
			return 0, err
		case all == nil || errors.Is(err, port.ErrGone):
			all = err
		}
	}
	return n, all
}

// of returns the half of f, and f's Slot there.
func (j *joined) of(f *port.Frame) (port.Rx, uint32) {
	return j.rxs[f.Slot>>halfShift], f.Slot & (1<<halfShift - 1)
}

func (j *joined) Bytes(f *port.Frame) []byte {
	rx, slot := j.of(f)
	old := f.Slot
	f.Slot = slot
	b := rx.Bytes(f)
	f.Slot = old
	return b
}

func (j *joined) Release(by int, b []port.Frame) {
	for i := range b {
		var rx port.Rx
		rx, b[i].Slot = j.of(&b[i])
		rx.Release(by, b[i:i+1])
	}
}

func (j *joined) Stats() (sum port.RxStats) {
	for _, rx := range j.rxs {
		s := rx.Stats()
		sum.Drops.Add(&s.Drops)
	}
	return sum
}

func (j *joined) Close() error {
	var errs []error
	for _, rx := range j.rxs {
		errs = append(errs, rx.Close())
	}
	return errors.Join(errs...)
}
