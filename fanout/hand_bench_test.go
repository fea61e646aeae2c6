package fanout

import (
	"testing"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/internal/wake"
	"github.com/epair-net/epair/rss"
)

// BenchmarkHandOver is what both workers do for a frame that goes from one to the other, on one thread: without
// the caches' and the scheduler's share.
func BenchmarkHandOver(b *testing.B) {
	for _, table := range []string{"1", "0"} {
		b.Run(table, func(b *testing.B) {
			h, err := rss.New(rss.Config{})
			if err != nil {
				b.Fatal(err)
			}
			t, err := rss.ParseTable(table, 128, 2)
			if err != nil {
				b.Fatal(err)
			}
			ws, src := [2]*worker{}, newSource(b)
			r := newRing()
			l := handOverLane(ws[:], src, NewSteering(h, t))
			for i := range ws {
				wait, err := wake.New()
				if err != nil {
					b.Fatal(err)
				}
				defer wait.Close()
				ws[i].wait, ws[i].touch, ws[i].peers = wait, make([]bool, 2), ws[:]
				ws[i].lanes = func() []*Lane { return []*Lane{l} }
			}
			ws[0].out, ws[1].in = []*ring{nil, r}, []*ring{r, nil}
			src.left.Store(1 << 62)
			b.ResetTimer()
			for n := 0; n < b.N; n += port.MaxBatch {
				ws[0].receive(l)
				ws[1].drain()
			}
		})
	}
}

func handOverLane(ws []*worker, src *source, s *Steering) *Lane {
	ws[0], ws[1] = &worker{id: 0}, &worker{id: 1}
	l := &Lane{rx: src, txs: []port.Tx{drain{0}, drain{1}}, cells: make([]cell, 2)}
	l.reader.Store(ws[0])
	l.steer, l.buckets = s, make([]bucket, s.table.Size())
	for i := range l.buckets {
		k := int32(s.table.Worker(i))
		l.buckets[i] = bucket{worker: k, want: k}
	}
	return l
}
