package porttest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// testEdges: after Receive returned less than a batch, the next frame makes FD
// ready, at whatever moment it comes.
func testEdges(t *testing.T, l *lab) { edges(t, l, port.MaxBatch) }

// testEdgesSmall: the same with batches that are often full.
func testEdgesSmall(t *testing.T, l *lab) { edges(t, l, 3) }

func edges(t *testing.T, l *lab, room int) {
	const bursts = 4000
	epfd := watch(t, l.A.Rx.FD())
	total := make(chan uint64, 1)
	go func() { total <- burstsInto(l.A.Far, bursts) }()
	want, known, heard := uint64(0), false, time.Now()
	for !known || l.arrived(&l.A) < want {
		if wait(t, epfd, 10*time.Millisecond) {
			l.takeBatches(t, room)
			heard = time.Now()
		} else if known && time.Since(heard) > patience {
			t.Fatalf("descriptor was silent for %v; received %d and lost %d of %d",
				patience, l.rx[&l.A], lost(&l.A), want)
		}
		if !known {
			select {
			case want = <-total:
				known, heard = true, time.Now()
			default:
			}
		}
	}
}

// takeBatches receives until less than a batch comes, as a worker does before it sleeps.
func (l *lab) takeBatches(t *testing.T, room int) {
	t.Helper()
	for {
		n, err := l.A.Rx.Receive(l.batch[:room])
		l.A.Rx.Release(0, l.batch[:n])
		l.rx[&l.A] += uint64(n)
		if err != nil && !errors.Is(err, port.ErrNoBuffer) {
			t.Fatalf("receive: %v", err)
		}
		if n < room && err == nil {
			return
		}
	}
}

// burstsInto sends bursts of one to four frames with random gaps between them,
// most of them about as long as a turn of the receiver takes.
func burstsInto(far Far, bursts int) (sent uint64) {
	r := rand.New(rand.NewPCG(5, 6))
	f := newFrame(1, 60)
	for range bursts {
		for range 1 + r.IntN(4) {
			if far.Send(nil, f) == nil {
				sent++
			}
		}
		gap := time.Duration(r.IntN(40)) * time.Microsecond
		if r.IntN(50) == 0 {
			gap = time.Millisecond
		}
		for start := time.Now(); time.Since(start) < gap; {
		}
	}
	return sent
}

// watch returns an epoll descriptor that watches fd as a worker does.
func watch(t *testing.T, fd int) int {
	t.Helper()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(epfd) })
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		t.Fatalf("watch the port's descriptor: %v", err)
	}
	return epfd
}

// wait waits for an event and reports whether one came.
func wait(t *testing.T, epfd int, long time.Duration) bool {
	t.Helper()
	var ev [1]unix.EpollEvent
	for end := time.Now().Add(long); ; {
		n, err := unix.EpollWait(epfd, ev[:], int(max(time.Until(end), 0)/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if n > 0 || time.Now().After(end) {
			return n > 0
		}
	}
}
