package fanout

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/rss"
)

// source is an endless port that costs next to nothing: what is left of the time is the pool's.
type source struct {
	fd     int
	left   atomic.Int64
	frames [testFlows][]byte
	next   int
	held   atomic.Int64
}

func newSource(b testing.TB) *source {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		b.Fatal(err)
	}
	s := &source{fd: fd}
	for i := range s.frames {
		s.frames[i] = flowFrame(make([]byte, 64), uint16(i), 0)
	}
	return s
}

// start lets n frames arrive.
func (s *source) start(n int) {
	s.left.Store(int64(n))
	_, _ = unix.Write(s.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (s *source) FD() int                       { return s.fd }
func (s *source) Bytes(f *port.Frame) []byte    { return s.frames[f.Slot] }
func (s *source) Release(_ int, b []port.Frame) { s.held.Add(-int64(len(b))) }
func (s *source) Stats() port.RxStats           { return port.RxStats{} }
func (s *source) Close() error                  { return unix.Close(s.fd) }

func (s *source) Receive(b []port.Frame) (int, error) {
	n := int(min(s.left.Load(), int64(len(b)), 768-s.held.Load())) // fewer than a hand-over ring holds: none is lost
	for i := range b[:n] {
		s.next = (s.next + 1) % testFlows
		b[i] = port.Frame{Len: 50, Slot: uint32(s.next)}
	}
	s.left.Add(-int64(n))
	s.held.Add(int64(n))
	if n < len(b) && s.left.Load() > 0 {
		return n, port.ErrNoBuffer
	}
	return n, nil
}

// drain is where all frames end.
type drain struct{ worker int }

func (d drain) Send(src port.Source, b []port.Frame, t *port.Tally) {
	t.Frames += uint64(len(b))
	src.Release(d.worker, b)
}
func (drain) Queued() int  { return 0 }
func (drain) Close() error { return nil }

// opener opens sources and drains.
type opener struct {
	b  testing.TB
	rx *source
}

func (o *opener) OpenRx(port.Worker) (port.Rx, error)   { o.rx = newSource(o.b); return o.rx, nil }
func (o *opener) OpenTx(w port.Worker) (port.Tx, error) { return drain{w.ID}, nil }

// BenchmarkForward is the pool's own cost of a frame: hash, table, hand-over, ledger.
func BenchmarkForward(b *testing.B) {
	for _, c := range []struct {
		mode  Mode
		table string
	}{{Inline, "equal"}, {Fanned, "0"}, {Fanned, "equal"}, {Fanned, "1"}} {
		b.Run(fmt.Sprintf("%s-%s", c.mode, c.table), func(b *testing.B) {
			p := benchPool(b)
			h, err := rss.New(rss.Config{})
			if err != nil {
				b.Fatal(err)
			}
			table, err := rss.ParseTable(c.table, 128, 2)
			if err != nil {
				b.Fatal(err)
			}
			from, to := &opener{b: b}, &opener{b: b}
			pair, err := p.Add(PairConfig{Name: "p", Mode: c.mode, A: from, B: to, Steering: NewSteering(h, table)})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			from.rx.start(b.N)
			for pair.AB.ledger().Tx < uint64(b.N) {
				time.Sleep(20 * time.Microsecond)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/frame")
		})
	}
}

func benchPool(b *testing.B) *Pool {
	b.Helper()
	p, err := NewPool(Config{CPUs: []int{0, 1}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	return p
}
