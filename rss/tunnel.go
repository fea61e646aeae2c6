package rss

import "encoding/binary"

// The tunnels that Config.Inner looks into. All of the tunnel's header must be
// there, and the outer packet must not be a fragment:
//
//	VXLAN    UDP to port 4789 or 8472 (Linux's old default), flag I set (RFC 7348): Ethernet
//	Geneve   UDP to port 6081, version 0 (RFC 8926): by its protocol type
//	GTP-U    UDP to port 2152, version 1, message T-PDU, up to maxGTPExts extension
//	         headers (3GPP TS 29.281): IP, by its version
//	GRE      protocol 47, version 0, checksum, key and sequence skipped, no routing
//	         (RFC 2784, 2890): by its protocol type
//	IP-in-IP protocols 4 and 41
//
// A protocol type is Ethernet (0x6558), IPv4 or IPv6. What is inside is parsed like a frame, within the outer packet's
// length; its flow counts if it is of type ip4 or wider, or an Ethernet frame that isn't IP.
// In all other cases (cut off, malformed, unknown) the outer flow counts. A
// tunnel inside a tunnel isn't looked into.
const (
	portVXLAN      = 4789
	portVXLANLinux = 8472
	portGeneve     = 6081
	portGTPU       = 2152

	maxGTPExts = 4
)

// intoTunnel makes fl the flow inside the tunnel that it is, if it is one.
func (fl *flow) intoTunnel(f []byte) {
	if fl.typ < IP4 || fl.note != noteNone {
		return
	}
	f = f[:fl.end]
	var in flow
	etype, off := fl.skipTunnel(f)
	switch etype {
	case etherTEB:
		in.parseEther(f, off)
	case etherIP4:
		in.l3 = off
		in.parseIP4(f)
	case etherIP6:
		in.l3 = off
		in.parseIP6(f)
	}
	if in.typ >= IP4 || etype == etherTEB && in.note == noteNone {
		in.inner = true
		*fl = in
	}
}

// skipTunnel returns the type and the offset of what a tunnel carries; type 0 for nothing usable.
func (fl *flow) skipTunnel(f []byte) (uint16, int) {
	switch fl.proto {
	case protoIP4:
		return etherIP4, fl.l4
	case protoIP6:
		return etherIP6, fl.l4
	case protoGRE:
		return skipGRE(f, fl.l4)
	case protoUDP:
		return skipUDPTunnel(f, fl.l4)
	}
	return 0, 0
}

// skipGRE does that for a GRE header at off.
func skipGRE(f []byte, off int) (uint16, int) {
	if len(f) < off+4 {
		return 0, 0
	}
	flags, etype := binary.BigEndian.Uint16(f[off:]), binary.BigEndian.Uint16(f[off+2:])
	if flags&0x4007 != 0 { // routing, or a version other than 0
		return 0, 0
	}
	off += 4
	for _, optional := range [...]uint16{0x8000, 0x2000, 0x1000} { // checksum, key, sequence
		if flags&optional != 0 {
			off += 4
		}
	}
	return etype, off
}

// skipUDPTunnel does it for a UDP header at off.
func skipUDPTunnel(f []byte, off int) (uint16, int) {
	if len(f) < off+16 { // UDP, and eight bytes that each of the tunnels has
		return 0, 0
	}
	dport := binary.BigEndian.Uint16(f[off+2:])
	off += 8
	h := f[off : off+8]
	switch dport {
	case portVXLAN, portVXLANLinux:
		if h[0]&0x08 != 0 {
			return etherTEB, off + 8
		}
	case portGeneve:
		if h[0]>>6 == 0 {
			return binary.BigEndian.Uint16(h[2:]), off + 8 + int(h[0]&0x3f)*4
		}
	case portGTPU:
		if h[0]>>4 == 3 && h[1] == 0xff { // version 1, protocol type GTP; T-PDU
			return skipGTPU(f, off, h[0])
		}
	}
	return 0, 0
}

// skipGTPU skips the rest of the GTP-U header at off.
func skipGTPU(f []byte, off int, flags uint8) (uint16, int) {
	end := off + 8
	next := uint8(0)
	if flags&0x07 != 0 { // sequence, N-PDU number or extension: all four bytes are there
		if end += 4; len(f) < end {
			return 0, 0
		}
		if flags&0x04 != 0 {
			next = f[end-1]
		}
	}
	for n := 0; next != 0; n++ {
		if n == maxGTPExts || len(f) <= end || f[end] == 0 {
			return 0, 0
		}
		if end += int(f[end]) * 4; len(f) < end {
			return 0, 0
		}
		next = f[end-1]
	}
	if len(f) <= end {
		return 0, 0
	}
	switch f[end] >> 4 {
	case 4:
		return etherIP4, end
	case 6:
		return etherIP6, end
	}
	return 0, 0
}
