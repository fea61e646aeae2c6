package packet

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slotHdr is struct tpacket2_hdr, which stands at the start of each slot.
type slotHdr struct {
	status  atomic.Uint32 // the slot's owner; written by the kernel and by us, in turn
	len     uint32        // the kernel's length of the frame; in a transmit slot ours
	snaplen uint32        // bytes of it that are in the slot
	mac     uint16        // where in the slot the frame starts
	net     uint16
	sec     uint32
	nsec    uint32
	tci     uint16 // the VLAN tag that the kernel took out of the frame
	tpid    uint16
	_       [4]byte
}

// slotHdrLen is the size of slotHdr, a multiple of TPACKET_ALIGNMENT as it stands.
const slotHdrLen = 32

// The compiler refuses a slotHdr of another size.
var _ = [1]struct{}{}[unsafe.Sizeof(slotHdr{})-slotHdrLen]

// ring is a ring of slots that a packet socket shares with us.
type ring struct {
	mem   []byte
	shift uint   // slot length, as a power of two
	mask  uint32 // number of slots - 1
}

// blockLen is the size of the contiguous pieces that the kernel builds a ring of:
// small enough to be found in fragmented memory, and a multiple of all slot lengths.
const blockLen = 64 << 10

// newRing gives the socket a ring (PACKET_RX_RING or PACKET_TX_RING) and maps it.
func newRing(fd, kind, slots, slotLen int) (*ring, error) {
	size := slots * slotLen
	block := min(size, blockLen)
	req := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(size / block),
		Frame_size: uint32(slotLen), Frame_nr: uint32(slots),
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, kind, &req); err != nil {
		return nil, fmt.Errorf("make a ring of %d slots of %d bytes: %w", slots, slotLen, err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a ring of %d bytes: %w", size, err)
	}
	r := &ring{mem: mem, mask: uint32(slots - 1)}
	for 1<<r.shift < slotLen {
		r.shift++
	}
	return r, nil
}

// hdr returns the header of slot i.
//
// The expression is valid because i is masked to the number of slots, so that the slot lies within
// mem; slots are 16-byte aligned (the mapping is page-aligned and the slot length a
// power of two of at least 256); and mem is not Go memory, so that nothing moves it
// while the ring is open.
func (r *ring) hdr(i uint32) *slotHdr {
	return (*slotHdr)(unsafe.Pointer(&r.mem[uint64(i&r.mask)<<r.shift]))
}

// slot returns the bytes of slot i.
func (r *ring) slot(i uint32) []byte {
	off := uint64(i&r.mask) << r.shift
	return r.mem[off : off+1<<r.shift : off+1<<r.shift]
}

// idle tells whether every slot is the kernel's to fill.
func (r *ring) idle() bool {
	for i := range r.mask + 1 {
		if r.hdr(i).status.Load() != unix.TP_STATUS_KERNEL {
			return false
		}
	}
	return true
}

func (r *ring) close() error { return unix.Munmap(r.mem) }
