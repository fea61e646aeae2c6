package fanout

import (
	"math/bits"
	"time"
)

// histogram counts durations in steps of a quarter of a power of two nanoseconds. The
// zero value is empty. It belongs to one goroutine at a time.
type histogram struct {
	n     [160]uint64 // up to 2^40 ns, 18 minutes
	count uint64
	max   time.Duration
}

// step returns where d is counted.
func step(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 4 {
		return int(v)
	}
	e := bits.Len64(v) - 1
	return min((e-1)*4+int(v>>(e-2)&3), 159)
}

// ceiling returns the longest duration that step i counts.
func ceiling(i int) time.Duration {
	if i < 4 {
		return time.Duration(i)
	}
	e := i/4 + 1
	return time.Duration(1)<<e + time.Duration(i%4+1)<<(e-2) - 1
}

func (h *histogram) record(d time.Duration) {
	h.n[step(d)]++
	h.count++
	h.max = max(h.max, d)
}

func (h *histogram) add(o *histogram) {
	for i, n := range o.n {
		h.n[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// quantile returns a bound that the share q of all durations doesn't exceed, at most a quarter too high.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.count))
	var sum uint64
	for i, n := range h.n {
		if sum += n; n > 0 && sum >= rank {
			return min(ceiling(i), h.max)
		}
	}
	return 0
}
