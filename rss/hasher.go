package rss

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Hasher computes the RSS hash of frames. It is immutable: any number of
// goroutines may use it at the same time.
type Hasher struct {
	table     *toeplitzTable
	fields    [NumFlowTypes]Fields
	fn        Func
	symmetric bool
	inner     bool
	key       []byte
	short4    [256]bool // by protocol: shortcut4 may be taken
	short6    [256]bool
}

// Hash returns the RSS hash of a frame, whatever the frame holds. It allocates nothing.
func (h *Hasher) Hash(frame []byte) uint32 {
	if len(frame) >= etherLen+2 {
		var hash uint32
		ok := false
		switch start := binary.BigEndian.Uint32(frame[12:]); {
		case start>>8 == etherIP4<<8|0x45:
			hash, ok = h.shortcut4(frame)
		case start>>12 == etherIP6<<4|0x6:
			hash, ok = h.shortcut6(frame)
		}
		if ok {
			return hash
		}
	}
	var k FlowKey
	h.fill(&k, frame)
	return h.Sum(&k)
}

// FlowKey returns the bytes that Hash hashes.
func (h *Hasher) FlowKey(frame []byte) FlowKey {
	var k FlowKey
	h.fill(&k, frame)
	return k
}

func (h *Hasher) fill(k *FlowKey, frame []byte) {
	var fl flow
	fl.parse(frame, h.inner)
	k.fill(frame, &fl, h.fields[fl.typ], h.symmetric)
}

// Sum hashes a flow key.
func (h *Hasher) Sum(k *FlowKey) uint32 {
	if h.fn == Toeplitz {
		return h.table.sum(k)
	}
	s := xxhash.Sum64(k.Bytes())
	return uint32(s>>32) ^ uint32(s)
}
