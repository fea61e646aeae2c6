package rss

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

var sink uint32

func benchHash(b *testing.B, cfg Config, frames [][]byte) {
	h := mustNew(b, cfg)
	b.ReportAllocs()
	var x uint32
	i := 0
	for b.Loop() {
		x ^= h.Hash(frames[i&255])
		i++
	}
	sink = x
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/frame")
}

// flows4 and flows6 return 256 frames of as many TCP flows.
func flows4() [][]byte {
	r := rand.New(rand.NewPCG(1, 4))
	return flows(func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	}, r)
}

func flows6() [][]byte {
	r := rand.New(rand.NewPCG(1, 6))
	return flows(func() netip.Addr {
		a := [16]byte{0x20, 1, 0xd, 0xb8}
		for i := 4; i < 16; i++ {
			a[i] = byte(r.Uint32())
		}
		return netip.AddrFrom16(a)
	}, r)
}

func flows(addr func() netip.Addr, r *rand.Rand) [][]byte {
	frames := make([][]byte, 256)
	for i := range frames {
		frames[i] = frameOf(protoTCP, netip.AddrPortFrom(addr(), uint16(r.Uint32())), netip.AddrPortFrom(addr(), uint16(r.Uint32())))
	}
	return frames
}

// inVXLAN puts each frame into one tunnel.
func inVXLAN(frames [][]byte) [][]byte {
	out := make([][]byte, len(frames))
	for i, f := range frames {
		out[i] = append(udpTo("12b5", "0800 0000 000042 00"), f...)
	}
	return out
}

func BenchmarkHash(b *testing.B) {
	v4, v6 := flows4(), flows6()
	b.Run("ip4/toeplitz", func(b *testing.B) { benchHash(b, Config{}, v4) })
	b.Run("ip4/toeplitz/symmetric", func(b *testing.B) { benchHash(b, Config{Symmetric: true}, v4) })
	b.Run("ip4/xxhash", func(b *testing.B) { benchHash(b, Config{Func: "xxhash"}, v4) })
	tagged := make([][]byte, len(v4))
	for i, f := range v4 {
		tagged[i] = slices.Concat(f[:12], []byte{0x81, 0, 0, 100}, f[12:])
	}
	b.Run("ip4/tagged", func(b *testing.B) { benchHash(b, Config{}, tagged) })
	b.Run("ip4/inner", func(b *testing.B) { benchHash(b, Config{Inner: true}, v4) })
	b.Run("ip4/vxlan/inner", func(b *testing.B) { benchHash(b, Config{Inner: true}, inVXLAN(v4)) })
	b.Run("ip6/toeplitz", func(b *testing.B) { benchHash(b, Config{}, v6) })
	b.Run("ip6/toeplitz/symmetric", func(b *testing.B) { benchHash(b, Config{Symmetric: true}, v6) })
	b.Run("ip6/xxhash", func(b *testing.B) { benchHash(b, Config{Func: "xxhash"}, v6) })
}
