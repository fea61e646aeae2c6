package rss

import "encoding/binary"

// Bounds of the parser. All are part of the contract with the BPF programs,
// which see a copy of the first Window bytes.
const (
	Window  = 256 // no byte at or behind this offset is looked at
	MaxTags = 8   // VLAN tags that are skipped
	MaxExts = 8   // IPv6 extension headers that are skipped
)

const (
	etherLen     = 14
	ip4Len       = 20
	ip6Len       = 40
	minEtherType = 0x600 // a smaller one is a length, IEEE 802.3

	etherIP4  = 0x0800
	etherIP6  = 0x86dd
	etherQ    = 0x8100 // IEEE 802.1Q
	etherAD   = 0x88a8 // IEEE 802.1ad
	etherQinQ = 0x9100 // in use before 802.1ad
	etherTEB  = 0x6558 // an Ethernet frame inside a tunnel

	protoHop     = 0
	protoIP4     = 4
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoIP6     = 41
	protoRouting = 43
	protoFrag    = 44
	protoGRE     = 47
	protoAH      = 51
	protoDest    = 60
	protoSCTP    = 132
	protoUDPLite = 136
)

// note says why a frame has no wider flow key.
type note uint8

const (
	noteNone      note = iota
	noteFragment       // only the first one has ports
	noteCut            // a header ends behind the frame, the window or the IP length
	noteMalformed      // an IP header that contradicts itself
	noteDeep           // more tags or extension headers than are skipped
)

var noteTexts = [...]string{"", "fragment", "header cut off", "malformed IP header", "too many tags or extension headers"}

// flow is what the parser found; the offsets are those of the frame.
type flow struct {
	typ   FlowType
	note  note
	proto uint8 // of what starts at l4; only for IP
	l2    int   // Ethernet header
	l3    int   // what follows the innermost ethertype
	addr  int   // source address
	l4    int   // what follows the IP header and the skipped extension headers
	end   int   // where the IP packet, the frame or the window ends
}

// parse finds the flow of a frame. f may be cut at Window.
func parse(f []byte, inner bool) flow {
	if len(f) > Window {
		f = f[:Window]
	}
	fl := parseEther(f, 0)
	if inner {
		return intoTunnel(f, fl)
	}
	return fl
}

// parseEther parses the frame that starts at l2.
func parseEther(f []byte, l2 int) flow {
	if len(f) < l2+etherLen {
		return flow{typ: Raw, note: noteCut, l2: l2}
	}
	l3 := l2 + etherLen
	etype := binary.BigEndian.Uint16(f[l3-2:])
	if isTag(etype) {
		var n note
		if l3, etype, n = skipTags(f, l3, etype); n != noteNone {
			return flow{typ: MAC, note: n, l2: l2, l3: l3}
		}
	}
	var fl flow
	switch etype {
	case etherIP4:
		fl = parseIP4(f, l3)
	case etherIP6:
		fl = parseIP6(f, l3)
	default:
		fl = flow{typ: MAC}
	}
	fl.l2, fl.l3 = l2, l3
	return fl
}

func isTag(etype uint16) bool { return etype == etherQ || etype == etherAD || etype == etherQinQ }

func skipTags(f []byte, l3 int, etype uint16) (int, uint16, note) {
	for n := 0; isTag(etype); n++ {
		if n == MaxTags {
			return l3, etype, noteDeep
		}
		if len(f) < l3+4 {
			return l3, etype, noteCut
		}
		l3 += 4
		etype = binary.BigEndian.Uint16(f[l3-2:])
	}
	return l3, etype, noteNone
}

// parseIP4 parses the packet at l3 (RFC 791). Of type MAC, if it has no usable header.
func parseIP4(f []byte, l3 int) flow {
	if len(f) < l3+ip4Len {
		return flow{typ: MAC, note: noteCut}
	}
	h := f[l3 : l3+ip4Len]
	headLen, total := int(h[0]&0xf)*4, int(binary.BigEndian.Uint16(h[2:]))
	if h[0]>>4 != 4 || headLen < ip4Len || total < headLen && total != 0 {
		return flow{typ: MAC, note: noteMalformed}
	}
	fl := flow{typ: IP4, proto: h[9], addr: l3 + 12, l4: l3 + headLen, end: len(f)}
	if total != 0 {
		fl.end = min(fl.end, l3+total)
	}
	if binary.BigEndian.Uint16(h[6:])&0x3fff != 0 { // more fragments, or an offset
		fl.note = noteFragment
		return fl
	}
	return parsePorts(fl)
}

// parseIP6 parses the packet at l3 (RFC 8200). Of type MAC, if it has no usable header.
func parseIP6(f []byte, l3 int) flow {
	if len(f) < l3+ip6Len {
		return flow{typ: MAC, note: noteCut}
	}
	h := f[l3 : l3+ip6Len]
	if h[0]>>4 != 6 {
		return flow{typ: MAC, note: noteMalformed}
	}
	fl := flow{typ: IP6, proto: h[6], addr: l3 + 8, l4: l3 + ip6Len, end: len(f)}
	if payload := int(binary.BigEndian.Uint16(h[4:])); payload != 0 || fl.proto != protoHop {
		fl.end = min(fl.end, l3+ip6Len+payload)
	}
	if isExt(fl.proto) {
		if fl = skipExts(f, fl); fl.note != noteNone {
			return fl
		}
	}
	return parsePorts(fl)
}

func isExt(proto uint8) bool {
	switch proto {
	case protoHop, protoRouting, protoFrag, protoAH, protoDest:
		return true
	}
	return false
}

func skipExts(f []byte, fl flow) flow {
	for n := 0; isExt(fl.proto); n++ {
		if n == MaxExts {
			fl.note = noteDeep
			return fl
		}
		if fl.l4+8 > fl.end { // none is shorter
			fl.note = noteCut
			return fl
		}
		h := f[fl.l4 : fl.l4+8]
		size := int(h[1])*8 + 8
		switch fl.proto {
		case protoFrag:
			if binary.BigEndian.Uint16(h[2:])&0xfff9 != 0 { // an offset, or more fragments
				fl.note = noteFragment
				return fl
			}
			size = 8
		case protoAH:
			size = int(h[1])*4 + 8
		}
		if fl.l4+size > fl.end {
			fl.note = noteCut
			return fl
		}
		fl.proto, fl.l4 = h[0], fl.l4+size
	}
	return fl
}

// parsePorts widens an IP flow by its ports, if it has any.
func parsePorts(fl flow) flow {
	var t FlowType
	switch fl.proto {
	case protoTCP:
		t = TCP4
	case protoUDP, protoUDPLite, protoDCCP:
		t = UDP4
	case protoSCTP:
		t = SCTP4
	default:
		return fl
	}
	if fl.l4+4 > fl.end {
		fl.note = noteCut
		return fl
	}
	fl.typ += t - IP4
	return fl
}
