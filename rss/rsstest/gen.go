// Package rsstest makes frames to compare parsers and hashes with: every kind
// that package rss knows, what it doesn't know, and both of them damaged.
package rsstest

import (
	"encoding/binary"
	"math/rand/v2"
)

// MaxFrame is an upper bound of the length of a generated frame.
const MaxFrame = 2048

// Gen generates frames. The same seed gives the same frames. It is used by one
// goroutine at a time.
type Gen struct {
	r       *rand.Rand
	b       []byte
	ends    []span // what the receiver would swap to answer
	heads   []int  // where IP headers start
	tunnels int    // how deep they nest
	mutated bool
}

// span is two fields of equal length that stand for the two ends of a flow.
type span struct{ a, b, n int }

// Frames returns a generator.
func Frames(seed int64) *Gen {
	return &Gen{r: rand.New(rand.NewPCG(uint64(seed), 0)), b: make([]byte, 0, MaxFrame)}
}

// Next returns the next frame, 0 to MaxFrame bytes long: three in four as a
// sender would make it, the fourth damaged (cut off, bytes changed, lengths wrong, or all random).
// borrowed: valid until the next call, until then the caller may change it.
func (g *Gen) Next() []byte {
	g.b, g.ends, g.heads = g.b[:0], g.ends[:0], g.heads[:0]
	g.tunnels = 0
	g.ether(0)
	g.pad()
	if g.mutated = g.oneIn(4); g.mutated {
		g.mutate()
	}
	if len(g.b) > MaxFrame {
		g.b, g.mutated = g.b[:MaxFrame], true
	}
	return g.b
}

// Mutated says whether the last frame was damaged.
func (g *Gen) Mutated() bool { return g.mutated }

// Tunnels returns how deep tunnels nest in the last frame: 0 for none.
func (g *Gen) Tunnels() int { return g.tunnels }

// Reverse returns a copy of the last frame with the two ends exchanged: MAC addresses,
// IP addresses and ports, inside tunnels too. The ports of a tunnel stay, as the answering
// end of a tunnel sends to the same port. Of a damaged frame, what isn't damaged is exchanged.
func (g *Gen) Reverse() []byte {
	f := append([]byte(nil), g.b...)
	for _, e := range g.ends {
		if max(e.a, e.b)+e.n > len(f) {
			continue
		}
		for i := range e.n {
			f[e.a+i], f[e.b+i] = f[e.b+i], f[e.a+i]
		}
	}
	return f
}

func (g *Gen) oneIn(n int) bool { return g.r.IntN(n) == 0 }

func (g *Gen) byte() byte { return byte(g.r.Uint32()) }

func (g *Gen) put(b ...byte)    { g.b = append(g.b, b...) }
func (g *Gen) put16(v int)      { g.b = binary.BigEndian.AppendUint16(g.b, uint16(v)) }
func (g *Gen) set16(off, v int) { binary.BigEndian.PutUint16(g.b[off:], uint16(v)) }

// random appends n random bytes.
func (g *Gen) random(n int) {
	for ; n >= 8; n -= 8 {
		g.b = binary.LittleEndian.AppendUint64(g.b, g.r.Uint64())
	}
	for ; n > 0; n-- {
		g.put(g.byte())
	}
}

// pick returns one of the choices.
func pick[T any](g *Gen, from ...T) T { return from[g.r.IntN(len(from))] }
