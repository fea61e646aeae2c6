package rss

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/epair-net/epair/rss/rsstest"
)

// symmetricConfigs are all settings that promise both directions the same hash.
func symmetricConfigs() []Config {
	all := []Config{{Key: "symmetric"}}
	for _, fn := range []string{"toeplitz", "xxhash"} {
		for _, set := range []string{"sdfn", "sd", "fn"} {
			f := map[string]string{"tcp4": set, "tcp6": set, "udp4": set, "udp6": set}
			all = append(all, Config{Func: fn, Symmetric: true, Fields: f})
		}
	}
	return all
}

func TestSymmetricTuples(t *testing.T) {
	for _, cfg := range symmetricConfigs() {
		h := mustNew(t, cfg)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 10_000 {
			there := randomTuple(r, []uint8{protoTCP, protoUDP, protoSCTP, protoICMP}[i%4], i%8 < 4)
			back := Tuple{there.Proto, there.Dst, there.Src}
			a, b := h.Hash(frameOf(there.Proto, there.Src, there.Dst)), h.Hash(frameOf(back.Proto, back.Src, back.Dst))
			if a != b {
				t.Fatalf("%+v: %s has hash %08x, the other direction %08x", cfg, there, a, b)
			}
		}
	}
}

// Frames of every kind, tunnels too, and their answers; what is symmetric only by the key isn't for MAC keys.
func TestSymmetricFrames(t *testing.T) {
	for _, inner := range []bool{false, true} {
		for _, cfg := range symmetricConfigs()[1:] {
			cfg.Inner = inner
			h := mustNew(t, cfg)
			g := rsstest.Frames(12)
			for range 20_000 {
				f := bytes.Clone(g.Next())
				if n := g.Tunnels(); g.Mutated() || n > 1 || n == 1 && !h.Explain(f).Inner {
					continue // hashed by the ports of a tunnel, which both ends send to
				}
				if a, b := h.Hash(f), h.Hash(g.Reverse()); a != b {
					t.Fatalf("%+v: frame %x has hash %08x, its answer %x %08x", cfg, f, a, g.Reverse(), b)
				}
			}
		}
	}
}

// Without symmetry the directions differ: the tests above can fail.
func TestAsymmetric(t *testing.T) {
	h := mustNew(t, Config{})
	r := rand.New(rand.NewPCG(2, 2))
	same := 0
	for range 1000 {
		u := randomTuple(r, protoTCP, false)
		if h.Hash(frameOf(protoTCP, u.Src, u.Dst)) == h.Hash(frameOf(protoTCP, u.Dst, u.Src)) {
			same++
		}
	}
	if same > 1 {
		t.Errorf("%d of 1000 flows have one hash in both directions", same)
	}
}

// Ordering keeps all 32 bits; the repeated key keeps 16, which its documentation says.
func TestSymmetricEntropy(t *testing.T) {
	ordered, keyed := mustNew(t, Config{Symmetric: true}), mustNew(t, Config{Key: "symmetric"})
	r := rand.New(rand.NewPCG(3, 3))
	halves, distinct := 0, map[uint32]bool{}
	for range 20_000 {
		u := randomTuple(r, protoTCP, false)
		f := frameOf(u.Proto, u.Src, u.Dst)
		if x := keyed.Hash(f); x>>16 != x&0xffff {
			t.Fatalf("%s: hash %08x by the symmetric key has different halves", u, x)
		}
		self := frameOf(protoICMP, u.Src, netip.AddrPortFrom(u.Src.Addr(), u.Dst.Port()))
		if x := keyed.Hash(self); x != 0 {
			t.Fatalf("%s to itself: hash %08x by the symmetric key, want 0", u.Src.Addr(), x)
		}
		x := ordered.Hash(f)
		if distinct[x] = true; x>>16 == x&0xffff {
			halves++
		}
	}
	if halves > 10 || len(distinct) < 19_900 {
		t.Errorf("of 20000 ordered flows %d have equal halves, and %d hashes differ", halves, len(distinct))
	}
}

func TestSymmetricMACs(t *testing.T) {
	h := mustNew(t, Config{Symmetric: true})
	there := []byte("\x02\x00\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x0a\x08\x06 ARP")
	back := []byte("\x02\x00\x00\x00\x00\x0a\x02\x00\x00\x00\x00\x0b\x08\x06 ARP")
	if a, b := h.Explain(there), h.Explain(back); a.Bytes != "02000000000a02000000000b0806" || b.Bytes != a.Bytes || a.Hash != b.Hash {
		t.Errorf("ARP is hashed as %s and %s", a.Bytes, b.Bytes)
	} else if !a.Swapped || b.Swapped {
		t.Errorf("swapped %v and %v, want true and false: the destination stands first", a.Swapped, b.Swapped)
	}
}
