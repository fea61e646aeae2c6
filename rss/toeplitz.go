package rss

import "encoding/binary"

// toeplitzTable holds what each value of each byte of a flow key adds to the hash.
type toeplitzTable [MaxKeyLen][256]uint32

// newToeplitzTable computes the table of a key of at least MaxKeyLen+4 bytes. Bit
// b of byte i, counted from its most significant one, adds the 32 bits of the
// key that start at bit 8i+b.
func newToeplitzTable(key []byte) *toeplitzTable {
	t := new(toeplitzTable)
	for i := range t {
		window := uint64(binary.BigEndian.Uint32(key[i:]))<<8 | uint64(key[i+4])
		for v := 1; v < 256; v++ {
			for b := 0; b < 8; b++ {
				if v&(0x80>>b) != 0 {
					t[i][v] ^= uint32(window >> (8 - b))
				}
			}
		}
	}
	return t
}

// sum hashes a flow key.
func (t *toeplitzTable) sum(k *FlowKey) uint32 {
	switch k.n {
	case 8:
		return t.sum8(k)
	case 12:
		return t.sum8(k) ^ t.sum4(8, k)
	case 32:
		return t.sum32(k)
	case 36:
		return t.sum32(k) ^ t.sum4(32, k)
	}
	var h uint32
	for i, b := range k.Bytes() {
		h ^= t[i][b]
	}
	return h
}

func (t *toeplitzTable) sum4(i int, k *FlowKey) uint32 {
	r, b := t[i:i+4], k.b[i:i+4]
	return r[0][b[0]] ^ r[1][b[1]] ^ r[2][b[2]] ^ r[3][b[3]]
}

func (t *toeplitzTable) sum8(k *FlowKey) uint32 {
	return t.sum4(0, k) ^ t.sum4(4, k)
}

func (t *toeplitzTable) sum32(k *FlowKey) uint32 {
	x := t.sum4(0, k) ^ t.sum4(4, k) ^ t.sum4(8, k) ^ t.sum4(12, k)
	y := t.sum4(16, k) ^ t.sum4(20, k) ^ t.sum4(24, k) ^ t.sum4(28, k)
	return x ^ y
}
