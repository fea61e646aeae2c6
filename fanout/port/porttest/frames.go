package porttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/epair-net/epair/fanout/port"
)

// ethLocal is IEEE 802's ethertype for local experiments: no stack answers it.
const ethLocal = 0x88b5

// minFrame is the shortest thing that is an Ethernet frame: its header.
const minFrame = 14

// Hdr is a struct virtio_net_hdr in the byte order of a little-endian machine.
type Hdr [port.VNetHdrLen]byte

// Fields of a virtio_net_hdr (virtio 1.2, 5.1.6).
const (
	NeedsCsum = 1 // Flags: the checksum at CsumOffset is only begun
	GSONone   = 0
	GSOTCP4   = 1
	GSOTCP6   = 4
	GSOUDPL4  = 5
	GSOECN    = 0x80 // or'ed to a TCP type
)

// Flags tells whether the checksum is finished.
func (h *Hdr) Flags() byte { return h[0] }

// GSOType tells by which rules the frame is to be segmented.
func (h *Hdr) GSOType() byte { return h[1] }

// HdrLen is the number of bytes that are to be linear.
func (h *Hdr) HdrLen() uint16 { return binary.LittleEndian.Uint16(h[2:]) }

// GSOSize is the payload of one segment.
func (h *Hdr) GSOSize() uint16 { return binary.LittleEndian.Uint16(h[4:]) }

// CsumStart is where checksumming starts.
func (h *Hdr) CsumStart() uint16 { return binary.LittleEndian.Uint16(h[6:]) }

// CsumOffset is where the sum belongs, from CsumStart.
func (h *Hdr) CsumOffset() uint16 { return binary.LittleEndian.Uint16(h[8:]) }

// NewHdr puts a header together.
func NewHdr(flags, gso byte, hdrLen, gsoSize, start, offset uint16) Hdr {
	h := Hdr{flags, gso}
	binary.LittleEndian.PutUint16(h[2:], hdrLen)
	binary.LittleEndian.PutUint16(h[4:], gsoSize)
	binary.LittleEndian.PutUint16(h[6:], start)
	binary.LittleEndian.PutUint16(h[8:], offset)
	return h
}

// fill makes f the seq-th frame: its number in the addresses, where the shortest
// frame has room for it, and a payload that depends on it.
func fill(f []byte, seq uint32) {
	f[0], f[5] = 2, 0xd
	binary.BigEndian.PutUint32(f[1:], seq)
	f[6], f[11] = 2, 0x5
	binary.BigEndian.PutUint32(f[7:], ^seq)
	binary.BigEndian.PutUint16(f[12:], ethLocal)
	x := uint64(seq)*0x9e3779b97f4a7c15 + uint64(len(f))
	for p := f[minFrame:]; len(p) > 0; {
		var w [8]byte
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(w[:], x)
		p = p[copy(p, w[:]):]
	}
}

func newFrame(seq uint32, size int) []byte {
	f := make([]byte, size)
	fill(f, seq)
	return f
}

// seqOf returns the number of a frame made by fill.
func seqOf(f []byte) uint32 { return binary.BigEndian.Uint32(f[1:]) }

// check says what is wrong with f if it isn't the seq-th frame with size bytes.
func check(f []byte, seq uint32, size int) error {
	return differ(f, newFrame(seq, size))
}

func differ(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return fmt.Errorf("frame of %d bytes came as %d, different from byte %d on: want % x… got % x…",
		len(want), len(got), i, want[i:min(len(want), i+24)], got[i:min(len(got), i+24)])
}

// sizes returns n frame lengths: every corner first, then random ones, small
// ones more often.
func sizes(n, largest int) []int {
	corners := []int{14, 15, 16, 17, 18, 20, 33, 34, 41, 42, 59, 60, 61, 63, 64, 65, 127, 128, 255, 256, 511, 512, 513,
		1023, 1024, 1499, 1500, 1513, 1514, 1900, 1941, 1942, 1955, 1956, 1957, 1958, 1990, 2003, 2006, 2007, 2016, 2047, 2048, 2049,
		3000, 3490, 3498, 4000, 4093, 4094, 4095, 4096, 4097, 8192, 9000, 9013, 9014, largest - 1, largest}
	s := make([]int, 0, n)
	for _, c := range corners {
		if c <= largest && len(s) < n {
			s = append(s, c)
		}
	}
	r := rand.New(rand.NewPCG(1, uint64(largest)))
	for len(s) < n {
		top := 200
		if r.IntN(2) == 0 {
			top = largest
		}
		s = append(s, minFrame+r.IntN(top-minFrame+1))
	}
	return s
}
