package porttest

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// IP versions, for TCPFrame and UDPFrame.
const (
	IPv4 = 4
	IPv6 = 6
)

// network makes the Ethernet and IP headers of a frame with a given protocol and
// payload length behind the IP header. It returns the frame and where that payload starts.
func network(version int, proto byte, payload int) ([]byte, int) {
	start := minFrame + 20
	if version == IPv6 {
		start = minFrame + 40
	}
	f := newFrame(uint32(payload), start+payload)
	ip := f[minFrame:]
	if version == IPv6 {
		binary.BigEndian.PutUint16(f[12:], 0x86dd)
		binary.BigEndian.PutUint32(ip, 6<<28)
		binary.BigEndian.PutUint16(ip[4:], uint16(payload))
		ip[6], ip[7] = proto, 64
		return f, start
	}
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	copy(ip, []byte{0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(min(20+payload, 65535)))
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip[:20]))
	return f, start
}

// sum is the Internet checksum's sum (RFC 1071), not yet complemented.
func sum(b []byte) uint16 {
	s := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// TCPFrame makes a TCP frame of size bytes whose checksum is only begun. A segment size
// of 0 makes it a plain frame. ecn is 0 or GSOECN.
func TCPFrame(version, size, segment int, ecn byte) (Hdr, []byte) {
	start := minFrame + 20
	if version == IPv6 {
		start = minFrame + 40
	}
	f, start := network(version, 6, size-start)
	tcp := f[start:]
	copy(tcp, []byte{0x1f, 0x90, 0x1f, 0x91, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0})
	if ecn != 0 {
		tcp[13] |= 0x80 // CWR
	}
	gso, hdrLen := byte(GSONone), 0
	if segment > 0 {
		gso, hdrLen = GSOTCP4, start+20
		if version == IPv6 {
			gso = GSOTCP6
		}
		gso |= ecn
	}
	return NewHdr(NeedsCsum, gso, uint16(hdrLen), uint16(segment), uint16(start), 16), f
}

// UDPFrame makes the same of UDP: USO, virtio's GSO_UDP_L4.
func UDPFrame(version, size, segment int) (Hdr, []byte) {
	start := minFrame + 20
	if version == IPv6 {
		start = minFrame + 40
	}
	f, start := network(version, 17, size-start)
	udp := f[start:]
	copy(udp, []byte{0x1f, 0x90, 0x1f, 0x91, 0, 0, 0, 0})
	binary.BigEndian.PutUint16(udp[4:], uint16(size-start))
	gso, hdrLen := byte(GSONone), 0
	if segment > 0 {
		gso, hdrLen = GSOUDPL4, start+8
	}
	return NewHdr(NeedsCsum, gso, uint16(hdrLen), uint16(segment), uint16(start), 6), f
}

// offloaded sends a frame across and compares what the header says of it: all but
// the length to be linear, which is each kernel's own matter.
func (l *lab) offloaded(t *testing.T, h Hdr, f []byte, what string) {
	t.Helper()
	for _, dir := range [][2]*End{{&l.A, &l.B}, {&l.B, &l.A}} {
		got := l.cross(t, dir[0], dir[1], &h, f, what)
		if got.Flags() != h.Flags() || got.GSOType() != h.GSOType() || got.GSOSize() != h.GSOSize() ||
			got.CsumStart() != h.CsumStart() || got.CsumOffset() != h.CsumOffset() {
			t.Fatalf("%s: header % x came out as % x", what, h, got)
		}
	}
}

// withTag tags a frame with a virtio_net_hdr.
func withTag(h Hdr, f []byte, tags ...uint32) (Hdr, []byte) {
	for range tags {
		shift(h[:])
	}
	return h, tag(f, tags...)
}

// testChecksum: a checksum that is only begun stays so, at its place.
func testChecksum(t *testing.T, l *lab) {
	if !l.caps.GSO {
		t.Skip("the port carries no virtio_net_hdr")
	}
	for _, version := range []int{IPv4, IPv6} {
		for _, size := range []int{80, 200, 1000, l.caps.MaxFrame - 1, l.caps.MaxFrame} {
			what := fmt.Sprintf("IPv%d, %d bytes", version, size)
			h, f := TCPFrame(version, size, 0, 0)
			l.offloaded(t, h, f, "TCP "+what)
			h, f = UDPFrame(version, size, 0)
			l.offloaded(t, h, f, "UDP "+what)
			for _, tags := range stacks() {
				if size+len(tags)*tagLen <= l.caps.MaxFrame {
					h, f := withTag(h, f, tags...)
					l.offloaded(t, h, f, fmt.Sprintf("UDP %s, tags %x", what, tags))
				}
			}
		}
	}
}

// testGSO: frames that stand for many cross whole.
func testGSO(t *testing.T, l *lab) {
	if !l.caps.GSO {
		t.Skip("the port carries no virtio_net_hdr")
	}
	const largest = 65535 - tagLen // GSO_LEGACY_MAX_SIZE: no device gets a longer frame whole
	for _, size := range []int{400, 1400, 1514, 1956, 2006, 2100, 3000, 9000, 20000, 40000, 65000, largest} {
		for _, version := range []int{IPv4, IPv6} {
			segment := min(1400, size/3)
			what := fmt.Sprintf("IPv%d, %d bytes", version, size)
			h, f := TCPFrame(version, size, segment, 0)
			l.offloaded(t, h, f, "TCP "+what)
			th, tf := withTag(h, f, 0x8100_0064)
			l.offloaded(t, th, tf, "tagged TCP "+what)
			h, f = TCPFrame(version, size, segment, GSOECN)
			l.offloaded(t, h, f, "TCP with ECN, "+what)
			if size/segment < 64 { // the kernel's UDP_MAX_SEGMENTS before 6.11
				h, f = UDPFrame(version, size, segment)
				l.offloaded(t, h, f, "UDP "+what)
			}
		}
	}
	l.mixGSO(t)
}

// mixGSO: long and short frames keep their order.
func (l *lab) mixGSO(t *testing.T) {
	t.Helper()
	for round := range 20 {
		var want [][]byte
		for i := range 12 {
			h, f := TCPFrame(IPv4, []int{200, 9000, 1000, 100, 30000, 3000}[(round+i*i)%6], 1400, 0)
			if len(f) <= 1000 {
				h, f = TCPFrame(IPv4, len(f), 0, 0)
			}
			binary.BigEndian.PutUint32(f[1:], uint32(i))
			want = append(want, f)
			l.inject(t, &l.A, &h, f)
		}
		l.forwardAll(t, &l.A, &l.B)
		for i, w := range want {
			_, f := l.expect(t, &l.B)
			if err := differ(f, w); err != nil {
				t.Fatalf("round %d, frame %d: %v", round, i, err)
			}
		}
	}
}
