package xdp

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPool: many goroutines take and put chunks; none is ever in two hands, and
// all are there in the end.
func TestPool(t *testing.T) {
	const chunks, goroutines, turns = 200, 6, 20000
	var p pool
	p.init(chunks)
	var held [chunks]atomic.Int32
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			var mine []uint32
			for range turns {
				c := make([]uint32, 1+r.IntN(64))
				for _, c := range c[:p.take(c)] {
					if held[c].Add(1) != 1 {
						t.Errorf("chunk %d was given out twice", c)
					}
					mine = append(mine, c)
				}
				n := r.IntN(len(mine) + 1)
				for _, c := range mine[:n] {
					held[c].Add(-1)
				}
				p.put(mine[:n])
				mine = mine[n:]
			}
			for _, c := range mine {
				held[c].Add(-1)
			}
			p.put(mine)
		})
	}
	wg.Wait()
	if n := p.len(); n != chunks {
		t.Errorf("%d of %d chunks are left", n, chunks)
	}
	seen := make([]uint32, chunks+1)
	if n := p.take(seen); n != chunks || p.len() != 0 {
		t.Errorf("took %d of %d chunks, %d left", n, chunks, p.len())
	}
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		frames, receivers, senders int
		want                       split
		ok                         bool
	}{
		{4096, 2, 2, split{1536, 256}, true},
		{4096, 2, 8, split{1280, 128}, true},
		{64, 2, 2, split{20, 8}, true},
		{64, 1, 1, split{40, 16}, true},
		{32, 2, 2, split{10, 4}, true},
		{16, 2, 2, split{}, false},
		{1, 1, 1, split{}, false},
		{64, 16, 2, split{}, false},
	} {
		got, err := divide(c.frames, c.receivers, c.senders)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("divide(%d, %d, %d) = %+v, %v", c.frames, c.receivers, c.senders, got, err)
		}
		if used := got.fill*c.receivers + got.send*c.senders; c.ok && used >= c.frames {
			t.Errorf("divide(%d, %d, %d) leaves nothing for the workers", c.frames, c.receivers, c.senders)
		}
	}
}
