package rss

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func mustNew(t testing.TB, cfg Config) *Hasher {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustTable(t testing.TB, spec string, size, workers int) *Table {
	t.Helper()
	table, err := ParseTable(spec, size, workers)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// frameOf builds a frame that carries a 5-tuple and 16 bytes more.
func frameOf(proto uint8, src, dst netip.AddrPort) []byte {
	f := make([]byte, etherLen, 128)
	copy(f, "\x02\x00\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x0a")
	if src.Addr().Is4() {
		binary.BigEndian.PutUint16(f[12:], etherIP4)
		f = append(f, 0x45, 0, 0, ip4Len+20, 0, 1, 0x40, 0, 64, proto, 0, 0)
	} else {
		binary.BigEndian.PutUint16(f[12:], etherIP6)
		f = append(f, 0x60, 0, 0, 0, 0, 20, proto, 64)
	}
	f = append(append(f, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	f = binary.BigEndian.AppendUint16(f, src.Port())
	f = binary.BigEndian.AppendUint16(f, dst.Port())
	return append(f, make([]byte, 16)...)
}

// randomTuple returns a flow between any two hosts; seldom a host with itself.
func randomTuple(r *rand.Rand, proto uint8, ip6 bool) Tuple {
	addr := func() netip.Addr {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], r.Uint64())
		binary.BigEndian.PutUint64(a[8:], r.Uint64())
		if ip6 {
			return netip.AddrFrom16(a)
		}
		return netip.AddrFrom4([4]byte(a[:]))
	}
	src, dst := addr(), addr()
	if r.IntN(20) == 0 {
		dst = src
	}
	return Tuple{proto, netip.AddrPortFrom(src, uint16(r.Uint32())), netip.AddrPortFrom(dst, uint16(r.Uint32()))}
}
