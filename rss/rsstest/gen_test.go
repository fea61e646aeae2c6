package rsstest

import (
	"bytes"
	"testing"
)

// The same seed gives the same frames, another seed others, and none is out of bounds.
func TestFramesAreReproducible(t *testing.T) {
	a, b, c := Frames(1), Frames(1), Frames(2)
	same := 0
	for i := range 20_000 {
		f := a.Next()
		if !bytes.Equal(f, b.Next()) {
			t.Fatalf("frame %d differs between two generators of one seed", i)
		}
		if bytes.Equal(f, c.Next()) {
			same++
		}
		if len(f) > MaxFrame {
			t.Fatalf("frame %d has %d bytes", i, len(f))
		}
	}
	if same > 1000 { // very short ones may be
		t.Errorf("%d of 20000 frames are equal with another seed", same)
	}
}

// Reversing twice gives the frame back; a whole frame begins with the MAC addresses exchanged.
func TestReverse(t *testing.T) {
	g := Frames(3)
	for range 20_000 {
		f := bytes.Clone(g.Next())
		r := g.Reverse()
		if !g.Mutated() && (!bytes.Equal(r[:6], f[6:12]) || !bytes.Equal(r[6:12], f[:6])) {
			t.Fatalf("MAC addresses of %x aren't exchanged in %x", f, r)
		}
		g.b = append(g.b[:0], r...)
		if back := g.Reverse(); !bytes.Equal(back, f) {
			t.Fatalf("reversed twice, %x is %x", f, back)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	g := Frames(1)
	b.ReportAllocs()
	for b.Loop() {
		g.Next()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/frame")
}
