package load

import (
	"encoding/binary"
	"slices"

	"github.com/epair-net/epair/bench/wire"
)

// mixLen is the length of the mix's cycle; gen.c knows it too.
const mixLen = 48

// mix returns the sizes in the order they are sent: for IMIX (64, 570 and 1518 bytes with
// their check sequences, 28 : 16 : 4) evenly interleaved, else only the first counts.
func mix(cfg *Config) (sizes [mixLen]uint16) {
	sizes[0] = uint16(cfg.Size)
	if !cfg.IMIX {
		return sizes
	}
	for i := range sizes {
		switch {
		case i%12 == 6:
			sizes[i] = 1514 // 4
		case i%3 == 1:
			sizes[i] = 566 // 16
		default:
			sizes[i] = wire.MinSize // 28
		}
	}
	return sizes
}

// inputLen is longer than any size, by at least a word: the program always cuts. An IPv6 frame fits in any case.
func inputLen(sizes [mixLen]uint16) int { return max(int(slices.Max(sizes[:])), wire.MinSize6) + 8 }

// skip returns by how much the mix is moved whenever all flows had a turn, so that each
// flow meets every size: the smallest step that makes a round coprime to the cycle.
func skip(flows int) uint32 {
	s := 0
	for gcd(flows+s, mixLen) != 1 {
		s++
	}
	return uint32(s)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// templates makes all flows as the program copies them. Those over IPv6 are spread evenly among the others.
func templates(cfg *Config) []genGenFlow {
	flows := make([]genGenFlow, cfg.Flows)
	headers, headers6 := wire.Headers(cfg.Flows, cfg.Seed, cfg.SrcMAC, cfg.DstMAC), wire.Headers6(cfg.Flows, cfg.Seed, cfg.SrcMAC, cfg.DstMAC)
	for i := range flows {
		t, header := &flows[i], headers[i][:]
		t.Sum = headers[i].Sum()
		if (i+1)*cfg.IP6/100 != i*cfg.IP6/100 {
			t.Sum, header = 0, headers6[i][:] // no IPv4 header sums up to 0
		}
		var words [8 * len(t.Header)]byte
		copy(words[:], header)
		for k := range t.Header {
			t.Header[k] = binary.NativeEndian.Uint64(words[8*k:])
		}
	}
	return flows
}
