package rss

import "encoding/binary"

// The shortcuts are what most frames take: untagged IP without options or extension
// headers, Toeplitz over all four fields. They do in registers what parse, fill
// and sum do in general, and give the same hash.

// Offsets in such frames.
const (
	ports4 = etherLen + ip4Len
	ports6 = etherLen + ip6Len
)

// shortcuts returns by protocol number whether a flow type's shortcut may be taken.
func (h *Hasher) shortcuts(base FlowType) (ok [256]bool) {
	if h.fn != Toeplitz {
		return ok
	}
	ok[protoTCP] = h.fields[base+TCP4-IP4] == allFields
	ok[protoUDP] = h.fields[base+UDP4-IP4] == allFields && !h.inner // may be a tunnel
	return ok
}

// shortcut4 hashes a frame that begins as an untagged IPv4 packet without options does.
func (h *Hasher) shortcut4(f []byte) (hash uint32, ok bool) {
	if len(f) < ports4+4 {
		return 0, false
	}
	total := binary.BigEndian.Uint16(f[16:]) // 0 states nothing, and wraps to the highest
	if binary.BigEndian.Uint16(f[20:])&0x3fff != 0 || total-1 < ip4Len+4-1 || !h.short4[f[23]] {
		return 0, false
	}
	a, p := binary.BigEndian.Uint64(f[26:]), binary.BigEndian.Uint32(f[ports4:])
	if h.symmetric {
		a, p = order4(a, p)
	}
	t := h.table
	x := t[0][a>>56] ^ t[1][a>>48&0xff] ^ t[2][a>>40&0xff] ^ t[3][a>>32&0xff]
	y := t[4][a>>24&0xff] ^ t[5][a>>16&0xff] ^ t[6][a>>8&0xff] ^ t[7][a&0xff]
	z := t[8][p>>24] ^ t[9][p>>16&0xff] ^ t[10][p>>8&0xff] ^ t[11][p&0xff]
	return x ^ y ^ z, true
}

// order4 puts the smaller endpoint first, without a branch: which it is, is chance.
func order4(a uint64, p uint32) (uint64, uint32) {
	s, d := a>>32<<16|uint64(p>>16), a<<32>>16|uint64(p&0xffff)
	lo, hi := min(s, d), max(s, d)
	return lo>>16<<32 | hi>>16, uint32(lo)<<16 | uint32(hi)&0xffff
}

// shortcut6 hashes a frame that begins as an untagged IPv6 packet does.
func (h *Hasher) shortcut6(f []byte) (hash uint32, ok bool) {
	if len(f) < ports6+4 || binary.BigEndian.Uint16(f[18:]) < 4 || !h.short6[f[20]] {
		return 0, false
	}
	src := endpoint6{binary.BigEndian.Uint64(f[22:]), binary.BigEndian.Uint64(f[30:]), binary.BigEndian.Uint16(f[ports6:])}
	dst := endpoint6{binary.BigEndian.Uint64(f[38:]), binary.BigEndian.Uint64(f[46:]), binary.BigEndian.Uint16(f[ports6+2:])}
	if h.symmetric && src.compare(dst) > 0 {
		src, dst = dst, src
	}
	t := h.table
	x := t.word(0, src.hi) ^ t.word(8, src.lo)
	y := t.word(16, dst.hi) ^ t.word(24, dst.lo)
	z := t[32][src.port>>8] ^ t[33][src.port&0xff] ^ t[34][dst.port>>8] ^ t[35][dst.port&0xff]
	return x ^ y ^ z, true
}

// word hashes eight bytes of a flow key, from position i on.
func (t *toeplitzTable) word(i int, w uint64) uint32 {
	r := t[i : i+8]
	x := r[0][w>>56] ^ r[1][w>>48&0xff] ^ r[2][w>>40&0xff] ^ r[3][w>>32&0xff]
	y := r[4][w>>24&0xff] ^ r[5][w>>16&0xff] ^ r[6][w>>8&0xff] ^ r[7][w&0xff]
	return x ^ y
}
