package rss

import "github.com/cespare/xxhash/v2"

// Hasher computes the RSS hash of frames. It is immutable: any number of
// goroutines may use it at the same time.
type Hasher struct {
	table     *toeplitzTable
	fields    [NumFlowTypes]Fields
	fn        Func
	symmetric bool
	inner     bool
	key       []byte
}

// Hash returns the RSS hash of a frame, whatever the frame holds. It allocates nothing.
func (h *Hasher) Hash(frame []byte) uint32 {
	var k FlowKey
	fl := parse(frame, h.inner)
	k.fill(frame, fl, h.fields[fl.typ], h.symmetric)
	return h.Sum(&k)
}

// FlowKey returns the bytes that Hash hashes.
func (h *Hasher) FlowKey(frame []byte) FlowKey {
	var k FlowKey
	fl := parse(frame, h.inner)
	k.fill(frame, fl, h.fields[fl.typ], h.symmetric)
	return k
}

// Sum hashes a flow key.
func (h *Hasher) Sum(k *FlowKey) uint32 {
	if h.fn == Toeplitz {
		return h.table.sum(k)
	}
	s := xxhash.Sum64(k.Bytes())
	return uint32(s>>32) ^ uint32(s)
}
