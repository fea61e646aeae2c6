package xdp

import (
	"encoding/binary"
	"math/bits"

	"github.com/epair-net/epair/fanout/port"
)

// copy stages frames of another port: each is copied into a chunk. It returns how many of b it
// has staged or dropped. AF_XDP carries no virtio_net_hdr: an unfinished checksum is
// finished here, and a frame that stands for many is a drop, as is one with a header that contradicts it.
func (x *Tx) copy(src port.Source, b []port.Frame, t *port.Tally, tr *tries) int {
	got := x.umem.free.take(x.chunks[:len(b)])
	if got == 0 {
		x.full(tr)
		return 0
	}
	used := 0
	for i := range b[:got] {
		f := &b[i]
		if f.Len > x.room() || f.Len > x.longest && x.tooLong(f.Len) {
			t.Drops[port.TxMTU]++
			continue
		}
		addr := uint64(x.chunks[used])<<x.umem.shift + headroom
		if f.Len == 0 || !x.fill(x.umem.bytes(addr, f.Len), src.Bytes(f), f.Flags) {
			t.Drops[port.TxInvalid]++
			continue
		}
		if debug {
			x.umem.owners.move(x.chunks[used], inPool, inHeld)
		}
		x.q.stage(x.umem, addr, f.Len)
		used++
	}
	x.umem.free.put(x.chunks[used:got])
	return got
}

// room is the longest frame that fits a chunk.
func (x *Tx) room() uint32 { return uint32(x.umem.size()) - headroom }

// fill copies a frame and finishes its checksum. False: the header asks for what can't be done.
func (x *Tx) fill(to, from []byte, flags uint32) bool {
	if flags&port.VNet == 0 {
		copy(to, from)
		return true
	}
	hdr, frame := from[:port.VNetHdrLen], from[port.VNetHdrLen:]
	copy(to, frame)
	return hdr[1] == 0 && (hdr[0]&needsCsum == 0 || finish(to, hdr)) // gso_type NONE
}

// needsCsum is VIRTIO_NET_HDR_F_NEEDS_CSUM.
const needsCsum = 1

// finish computes the checksum that a virtio_net_hdr describes: the Internet checksum (RFC 1071) over
// all from csum_start on, where the pseudo header's sum stands in the field.
func finish(frame, hdr []byte) bool {
	start := int(binary.NativeEndian.Uint16(hdr[6:]))
	at := start + int(binary.NativeEndian.Uint16(hdr[8:]))
	if at+2 > len(frame) {
		return false
	}
	sum := ^fold(frame[start:])
	if sum == 0 {
		sum = 0xffff // CSUM_MANGLED_0: 0 in a UDP header means that there is none
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
	return true
}

// fold sums b up in one's complement arithmetic.
func fold(b []byte) uint16 {
	var sum, carry uint64
	for ; len(b) >= 8; b = b[8:] {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
	}
	var tail [8]byte
	copy(tail[:], b)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(tail[:]), carry)
	sum, carry = bits.Add64(sum, 0, carry)
	sum += carry
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}
