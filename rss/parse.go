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
	protoICMP    = 1
	protoIGMP    = 2
	protoIP4     = 4
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoIP6     = 41
	protoRouting = 43
	protoFrag    = 44
	protoGRE     = 47
	protoESP     = 50
	protoAH      = 51
	protoICMP6   = 58
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
	inner bool  // it is inside a tunnel
	proto uint8 // of what starts at l4; only for IP
	l2    int   // Ethernet header
	l3    int   // what follows the innermost ethertype
	addr  int   // source address
	l4    int   // what follows the IP header and the skipped extension headers
	end   int   // where the IP packet, the frame or the window ends
}

// parse finds the flow of a frame. f may be cut at Window.
func (fl *flow) parse(f []byte, inner bool) {
	if len(f) > Window {
		f = f[:Window]
	}
	fl.parseEther(f, 0)
	if inner {
		fl.intoTunnel(f)
	}
}

// parseEther parses the frame that starts at l2.
func (fl *flow) parseEther(f []byte, l2 int) {
	*fl = flow{l2: l2, l3: l2 + etherLen}
	if len(f) < fl.l3 {
		fl.typ, fl.note = Raw, noteCut
		return
	}
	etype := binary.BigEndian.Uint16(f[fl.l3-2:])
	if isTag(etype) {
		etype = fl.skipTags(f, etype)
	}
	switch etype {
	case etherIP4:
		fl.parseIP4(f)
	case etherIP6:
		fl.parseIP6(f)
	default:
		fl.typ = MAC
	}
}

func isTag(etype uint16) bool { return etype == etherQ || etype == etherAD || etype == etherQinQ }

// skipTags returns the ethertype behind the last complete tag.
func (fl *flow) skipTags(f []byte, etype uint16) uint16 {
	for n := 0; isTag(etype); n++ {
		if n == MaxTags {
			fl.note = noteDeep
			break
		}
		if len(f) < fl.l3+4 {
			fl.note = noteCut
			break
		}
		fl.l3 += 4
		etype = binary.BigEndian.Uint16(f[fl.l3-2:])
	}
	return etype
}

// parseIP4 parses the packet at l3 (RFC 791): type MAC, if it has no usable header.
func (fl *flow) parseIP4(f []byte) {
	if len(f) < fl.l3+ip4Len {
		fl.typ, fl.note = MAC, noteCut
		return
	}
	h := f[fl.l3 : fl.l3+ip4Len]
	headLen, total := int(h[0]&0xf)*4, int(binary.BigEndian.Uint16(h[2:]))
	if h[0]>>4 != 4 || headLen < ip4Len || total < headLen && total != 0 {
		fl.typ, fl.note = MAC, noteMalformed
		return
	}
	fl.typ, fl.proto, fl.addr, fl.l4, fl.end = IP4, h[9], fl.l3+12, fl.l3+headLen, len(f)
	if total != 0 {
		fl.end = min(fl.end, fl.l3+total)
	}
	if binary.BigEndian.Uint16(h[6:])&0x3fff != 0 { // more fragments, or an offset
		fl.note = noteFragment
		return
	}
	fl.parsePorts()
}

// parseIP6 parses the packet at l3 (RFC 8200): type MAC, if it has no usable header.
func (fl *flow) parseIP6(f []byte) {
	if len(f) < fl.l3+ip6Len {
		fl.typ, fl.note = MAC, noteCut
		return
	}
	h := f[fl.l3 : fl.l3+ip6Len]
	if h[0]>>4 != 6 {
		fl.typ, fl.note = MAC, noteMalformed
		return
	}
	fl.typ, fl.proto, fl.addr, fl.l4, fl.end = IP6, h[6], fl.l3+8, fl.l3+ip6Len, len(f)
	if payload := int(binary.BigEndian.Uint16(h[4:])); payload != 0 || fl.proto != protoHop {
		fl.end = min(fl.end, fl.l4+payload)
	}
	if isExt(fl.proto) {
		fl.skipExts(f)
	}
	if fl.note == noteNone {
		fl.parsePorts()
	}
}

func isExt(proto uint8) bool {
	switch proto {
	case protoHop, protoRouting, protoFrag, protoAH, protoDest:
		return true
	}
	return false
}

// skipExts moves proto and l4 to what follows the extension headers, or notes why not.
func (fl *flow) skipExts(f []byte) {
	for n := 0; isExt(fl.proto) && fl.note == noteNone; n++ {
		if n == MaxExts {
			fl.note = noteDeep
			return
		}
		fl.skipExt(f)
	}
}

func (fl *flow) skipExt(f []byte) {
	if fl.l4+8 > fl.end { // none is shorter
		fl.note = noteCut
		return
	}
	h := f[fl.l4 : fl.l4+8]
	size := int(h[1])*8 + 8
	switch fl.proto {
	case protoFrag:
		if binary.BigEndian.Uint16(h[2:])&0xfff9 != 0 { // an offset, or more fragments
			fl.note = noteFragment
			return
		}
		size = 8
	case protoAH:
		size = int(h[1])*4 + 8
	}
	if fl.l4+size > fl.end {
		fl.note = noteCut
		return
	}
	fl.proto, fl.l4 = h[0], fl.l4+size
}

// parsePorts widens an IP flow by its ports, if it has any.
func (fl *flow) parsePorts() {
	var wider FlowType
	switch fl.proto {
	case protoTCP:
		wider = TCP4 - IP4
	case protoUDP, protoUDPLite, protoDCCP:
		wider = UDP4 - IP4
	case protoSCTP:
		wider = SCTP4 - IP4
	default:
		return
	}
	if fl.l4+4 > fl.end {
		fl.note = noteCut
		return
	}
	fl.typ += wider
}
