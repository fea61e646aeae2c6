package fanout

import (
	"testing"

	"github.com/epair-net/epair/fanout/port"
)

func frame(i uint64) entry { return entry{Frame: port.Frame{Off: i}} }

func TestRingIsBoundedAndInOrder(t *testing.T) {
	r := newRing()
	for lap := range uint64(3) {
		for i := range uint64(ringSize) {
			if !r.push(frame(lap*ringSize + i)) {
				t.Fatalf("lap %d: full after %d entries, want %d", lap, i, ringSize)
			}
		}
		if r.push(frame(0)) {
			t.Fatal("took more than it holds")
		}
		if got := r.peek(port.MaxBatch); got != nil {
			t.Fatalf("showed %d entries before they were published", len(got))
		}
		r.publish()
		if r.len() != ringSize {
			t.Fatalf("len = %d, want %d", r.len(), ringSize)
		}
		for i := uint64(0); i < ringSize; {
			es := r.peek(port.MaxBatch - 1) // doesn't divide the size: pieces meet the wrap
			for _, e := range es {
				if e.Off != lap*ringSize+i {
					t.Fatalf("lap %d: entry %d is %d", lap, i, e.Off)
				}
				i++
			}
			r.advance(len(es))
		}
		if !r.empty() {
			t.Fatal("not empty after all was read")
		}
	}
}

func TestRingBetweenThreads(t *testing.T) {
	r := newRing()
	const n = 500_000
	go func() {
		for i := uint64(0); i < n; {
			k := i
			for ; k < min(i+port.MaxBatch, n) && r.push(frame(k)); k++ {
			}
			r.publish()
			i = k
		}
	}()
	for i := uint64(0); i < n; {
		es := r.peek(port.MaxBatch)
		for _, e := range es {
			if e.Off != i {
				t.Fatalf("entry %d is %d", i, e.Off)
			}
			i++
		}
		r.advance(len(es))
	}
}
