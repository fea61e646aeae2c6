// Package wire is what the load's frames look like, for those who make, count and forge them.
//
//	 0  Ethernet            14  the load's addresses
//	14  IPv4                20  198.18.x.y → 198.19.x.y (RFC 2544's networks), identification: the run
//	34  UDP                  8  pseudo-random ports, no checksum
//	42  flow                 2  number of the flow
//	44  sequence             4  of the frame within its flow and run, from 0
//	48  due                  8  when the frame should have been sent, ns of CLOCK_MONOTONIC
//	56  late                 4  how much later it was sent, ns, at most 2³²-1
//	60  zeros
//
// or over IPv6, whose frames have 80 bytes at least:
//
//	 0  Ethernet            14  the load's addresses
//	14  IPv6                40  2001:2:0:12:: → 2001:2:0:13:: (RFC 5180's network), flow label: the run
//	54  UDP                  8  pseudo-random ports, no checksum
//	62  flow, sequence, due, late, as above
//
// The payload is in the byte order of the machine: it doesn't leave it. wire.h says the same in C.
package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// Sizes of frames, without their check sequence.
const (
	MinSize  = 60
	MinSize6 = 80
	MaxLive  = 3392 // what the kernel's live frames hold in one page, rounded down to a cache line
	MaxSize  = 9014 // an MTU of 9000
	MaxFlow  = 1 << 14
)

const (
	headerSize = 42
	etherSize  = 14
	ipSize     = 20

	headerSize6 = 62
	ip6Size     = 40
)

// SrcNet and DstNet are the networks of all flows: what lies between routes the latter.
func SrcNet() netip.Prefix { return netip.MustParsePrefix("198.18.0.0/16") }

// DstNet contains where all frames go.
func DstNet() netip.Prefix { return netip.MustParsePrefix("198.19.0.0/16") }

// SrcNet6 and DstNet6 are those of flows over IPv6.
func SrcNet6() netip.Prefix { return netip.MustParsePrefix("2001:2:0:12::/64") }

// DstNet6 contains where all frames of those go.
func DstNet6() netip.Prefix { return netip.MustParsePrefix("2001:2:0:13::/64") }

// MAC is an Ethernet address.
type MAC [6]byte

// Header is a flow's first 42 bytes, but for the lengths, the identification and the IP checksum, which are 0.
type Header [headerSize]byte

// Header6 is Header over IPv6: 62 bytes, but for the lengths and the flow label, which are 0.
type Header6 [headerSize6]byte

// Headers6 makes the headers of n flows over IPv6, as Headers does.
func Headers6(n int, seed uint64, src, dst MAC) []Header6 {
	be := binary.BigEndian
	headers := make([]Header6, n)
	for i, h4 := range Headers(n, seed, src, dst) {
		h := &headers[i]
		copy(h[:12], h4[:12])
		be.PutUint16(h[12:], 0x86dd)
		h[14] = 0x60
		h[20], h[21] = 17, 64 // UDP, hops
		from, to := SrcNet6().Addr().As16(), DstNet6().Addr().As16()
		copy(from[14:], h4[28:30])
		copy(to[14:], h4[32:34])
		copy(h[22:], from[:])
		copy(h[38:], to[:])
		copy(h[54:58], h4[34:38]) // ports
	}
	return headers
}

// Headers makes the headers of n flows. The same seed makes the same ones. No two flows have the same addresses and ports.
func Headers(n int, seed uint64, src, dst MAC) []Header {
	rnd := rand.New(rand.NewPCG(seed, 0))
	seen := make(map[[12]byte]bool, n)
	headers := make([]Header, 0, n)
	for len(headers) < n {
		h := header(rnd, src, dst)
		key := [12]byte(h[26:38])
		if seen[key] {
			continue
		}
		seen[key] = true
		headers = append(headers, h)
	}
	return headers
}

func header(rnd *rand.Rand, src, dst MAC) (h Header) {
	be := binary.BigEndian
	copy(h[0:], dst[:])
	copy(h[6:], src[:])
	be.PutUint16(h[12:], 0x0800)
	h[14] = 0x45
	h[20] = 0x40 // don't fragment
	h[22] = 64   // hops
	h[23] = 17   // UDP
	be.PutUint32(h[26:], 198<<24|18<<16|host(rnd))
	be.PutUint32(h[30:], 198<<24|19<<16|host(rnd))
	be.PutUint16(h[34:], port(rnd))
	be.PutUint16(h[36:], port(rnd))
	return h
}

// host and port avoid what stands for a network, a broadcast or a well-known service.
func host(rnd *rand.Rand) uint32 { return 1 + uint32(rnd.IntN(1<<16-2)) }
func port(rnd *rand.Rand) uint16 { return 1024 + uint16(rnd.IntN(1<<16-1024)) }

// Sum is the ones' complement sum of the IP header's words as the machine reads them, to be
// completed with the two fields that differ from frame to frame.
func (h *Header) Sum() (sum uint32) {
	for i := etherSize; i < etherSize+ipSize; i += 2 {
		sum += uint32(binary.NativeEndian.Uint16(h[i:]))
	}
	return sum
}

// Stamp is what the load writes into a frame.
type Stamp struct {
	Run  uint16
	Flow uint16
	Seq  uint32
	Due  uint64
	Late uint32
}

// Parse reads the stamp of a frame; ok says that it is one of the load's.
func Parse(frame []byte) (s Stamp, ok bool) {
	if len(frame) >= MinSize6 && frame[12] == 0x86 && frame[13] == 0xdd {
		return parse6(frame)
	}
	if len(frame) < MinSize || frame[12] != 8 || frame[13] != 0 || frame[14] != 0x45 || frame[23] != 17 {
		return s, false
	}
	if [2]byte(frame[26:]) != [2]byte{198, 18} || [2]byte(frame[30:]) != [2]byte{198, 19} {
		return s, false
	}
	ne := binary.NativeEndian
	return Stamp{
		Run: binary.BigEndian.Uint16(frame[18:]), Flow: ne.Uint16(frame[42:]), Seq: ne.Uint32(frame[44:]),
		Due: ne.Uint64(frame[48:]), Late: ne.Uint32(frame[56:]),
	}, true
}

func parse6(frame []byte) (s Stamp, ok bool) {
	net := [4]byte{0x20, 1, 0, 2}
	if frame[20] != 17 || [4]byte(frame[22:]) != net || [4]byte(frame[38:]) != net {
		return s, false
	}
	ne := binary.NativeEndian
	return Stamp{
		Run: binary.BigEndian.Uint16(frame[16:]), Flow: ne.Uint16(frame[62:]), Seq: ne.Uint32(frame[64:]),
		Due: ne.Uint64(frame[68:]), Late: ne.Uint32(frame[76:]),
	}, true
}

// Finish6 is Finish over IPv6.
func Finish6(frame []byte, s Stamp) {
	be, ne := binary.BigEndian, binary.NativeEndian
	be.PutUint16(frame[16:], s.Run)
	size := uint16(len(frame) - etherSize - ip6Size)
	be.PutUint16(frame[18:], size)
	be.PutUint16(frame[58:], size)
	be.PutUint16(frame[60:], 0) // no UDP checksum
	ne.PutUint16(frame[62:], s.Flow)
	ne.PutUint32(frame[64:], s.Seq)
	ne.PutUint64(frame[68:], s.Due)
	ne.PutUint32(frame[76:], s.Late)
}

// Finish completes a frame that begins with a flow's header: lengths, checksum (sum is Header.Sum's) and stamp.
func Finish(frame []byte, sum uint32, s Stamp) {
	be, ne := binary.BigEndian, binary.NativeEndian
	be.PutUint16(frame[16:], uint16(len(frame)-etherSize))
	be.PutUint16(frame[18:], s.Run)
	sum += uint32(ne.Uint16(frame[16:])) + uint32(ne.Uint16(frame[18:]))
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	ne.PutUint16(frame[24:], ^uint16(sum))
	be.PutUint16(frame[38:], uint16(len(frame)-etherSize-ipSize))
	be.PutUint16(frame[40:], 0) // no UDP checksum
	ne.PutUint16(frame[42:], s.Flow)
	ne.PutUint32(frame[44:], s.Seq)
	ne.PutUint64(frame[48:], s.Due)
	ne.PutUint32(frame[56:], s.Late)
}

// CheckSize says whether the load can make frames of a size.
func CheckSize(size int) error {
	if size < MinSize || size > MaxSize {
		return fmt.Errorf("use frame size %d: outside %d to %d bytes", size, MinSize, MaxSize)
	}
	return nil
}
