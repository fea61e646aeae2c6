package fanout

import (
	"sync"
	"time"
)

// FenceStats adds up all live changes of a pool.
type FenceStats struct {
	Changes, Failed uint64 // that were done; that were given up
	Moved, Held     uint64 // buckets that moved; of these, those that had frames in flight

	MoveP50, MoveMax       time.Duration // from the request to the move of a bucket
	MoveP99                time.Duration
	BlockedP50, BlockedMax time.Duration // how long the lane that waited longest waited, per change
}

// fenceStats is what FenceStats is made of.
type fenceStats struct {
	mu      sync.Mutex // guards all; not the pool's, so that reading doesn't wait for a change
	sum     FenceStats
	took    histogram
	blocked histogram
}

func (f *fenceStats) add(c *Change, took *histogram, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.sum.Failed++
	} else {
		f.sum.Changes++
		f.blocked.record(c.Blocked)
	}
	f.sum.Moved += uint64(c.Moved)
	f.sum.Held += uint64(c.Held)
	f.took.add(took)
}

// Fence returns what the changes of the pool did until now.
func (p *Pool) Fence() FenceStats {
	f := &p.fence
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sum
	s.MoveP50, s.MoveP99, s.MoveMax = f.took.quantile(0.5), f.took.quantile(0.99), f.took.max
	s.BlockedP50, s.BlockedMax = f.blocked.quantile(0.5), f.blocked.max
	return s
}
