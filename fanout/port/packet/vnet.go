package packet

import (
	"encoding/binary"

	"github.com/epair-net/epair/fanout/port"
)

// Fields of struct virtio_net_hdr, which the kernel keeps in the machine's own
// byte order on packet sockets (vio_le is false there, virtio_legacy_is_little_endian).
const (
	hdrFlags     = 0
	hdrGSOType   = 1
	hdrLen       = 2
	hdrCsumStart = 6

	needsCsum = 1 // of hdrFlags
	gsoNone   = 0 // of hdrGSOType
)

// shiftHdr corrects a header for n bytes put into the frame in front of what it points at.
func shiftHdr(h []byte, n uint16) {
	if h[hdrFlags]&needsCsum != 0 {
		addUint16(h[hdrCsumStart:], n)
	}
	if h[hdrGSOType] != gsoNone {
		addUint16(h[hdrLen:], n)
	}
}

func addUint16(b []byte, n uint16) {
	binary.NativeEndian.PutUint16(b, binary.NativeEndian.Uint16(b)+n)
}

// setLinear sets how many bytes of the frame the kernel puts into one piece.
func setLinear(h []byte, n int) { binary.NativeEndian.PutUint16(h[hdrLen:], uint16(n)) }

// isGSO tells whether a frame with its virtio_net_hdr stands for many.
func isGSO(f *port.Frame, mem []byte) bool {
	return f.Flags&port.VNet != 0 && mem[hdrGSOType] != gsoNone
}
