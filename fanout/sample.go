package fanout

import "github.com/epair-net/epair/fanout/port"

const (
	// sampleEvery is how many frames pass at least between two that are looked at closer.
	sampleEvery = 16
	// heavySlots is how many flows of a lane are kept: one with more than an eighth of its load is among them.
	heavySlots = 8
	// headLen is as much of a frame as is kept of each: its headers, unless they are very long.
	headLen = 128
	// frameCost is what a frame costs beside its bytes, in bytes: with packet sockets a frame
	// of 64 bytes takes 0.95 µs, and a byte of a long one 0.67 ns.
	frameCost = 1400
	// fadeAt is the load at which all counts of a lane are halved: what was heavy long ago fades, at
	// 1 Mpps within a second.
	fadeAt = 1 << 30
)

// heavyFlow is a flow that may be heavy.
type heavyFlow struct {
	hash  uint32
	len   int
	head  [headLen]byte // first bytes of one of its frames
	load  uint64        // at most
	above uint64        // of load, what may be other flows'
}

// sampler finds the heavy flows of a lane. It counts one frame of a batch for all since the last,
// and keeps the flows with most (Space-Saving: Metwally, Agrawal, El Abbadi, 2005). All of
// it is the reader's own.
type sampler struct {
	flows [heavySlots]heavyFlow
	since int    // frames since the last that was looked at
	total uint64 // load
}

// sample looks at one frame of b, whose hashes are known and whose bytes are still ours.
func (s *sampler) sample(src port.Source, b []port.Frame) {
	f := &b[int(s.total>>4)%len(b)]
	load := uint64(s.since) * (frameCost + uint64(f.Len))
	s.since = 0
	if s.total += load; s.total > fadeAt {
		s.fade()
	}
	least := &s.flows[0]
	for i := range s.flows {
		k := &s.flows[i]
		if k.hash == f.Hash && k.len > 0 {
			k.load += load
			return
		}
		if k.load < least.load {
			least = k
		}
	}
	least.hash, least.above = f.Hash, least.load
	least.load += load
	mem := src.Bytes(f)
	if f.Flags&port.VNet != 0 {
		mem = mem[port.VNetHdrLen:]
	}
	least.len = copy(least.head[:], mem)
}

func (s *sampler) fade() {
	s.total /= 2
	for i := range s.flows {
		s.flows[i].load /= 2
		s.flows[i].above /= 2
	}
}
