package packet

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// take makes f the frame of the slot at head. If it drops it instead, ok is false.
func (r *Rx) take(f *port.Frame, h *slotHdr, st uint32) (ok bool, err error) {
	if st&unix.TP_STATUS_COPY != 0 {
		return r.takeQueued(f, h, st)
	}
	mac, n := uint32(h.mac), h.snaplen
	switch {
	case n < h.len: // there was no room for it in the receive buffer
		r.drop(h, &r.truncated)
		return false, nil
	case mac < slotHdrLen+tagLen+port.VNetHdrLen || mac+n > 1<<r.ring.shift || n < minFrame:
		r.drop(h, &r.invalid)
		return false, nil
	}
	slot := r.head & r.ring.mask
	off := uint64(slot)<<r.ring.shift + uint64(mac)
	if st&unix.TP_STATUS_VLAN_VALID != 0 {
		off, n = retag(r.ring.mem, off, h, st), n+tagLen
	}
	*f = port.Frame{Off: off, Len: n, Slot: slot, Flags: port.VNet}
	h.status.Store(taken) // only a mark for our own next turn: the kernel waits for KERNEL
	return true, nil
}

// minFrame is the shortest frame: its header.
const minFrame = 14

func (r *Rx) drop(h *slotHdr, count *atomic.Uint64) {
	count.Add(1)
	h.status.Store(unix.TP_STATUS_KERNEL) // pairs with the kernel's look at its head
}

// takeQueued reads the frame that is next in the socket's queue. The kernel queued
// exactly one for each slot with TP_STATUS_COPY, in slot order (tpacket_rcv
// does both under one lock), so exactly one is read for each.
func (r *Rx) takeQueued(f *port.Frame, h *slotHdr, st uint32) (ok bool, err error) {
	buf, free := r.arena.Get()
	if !free {
		return false, port.ErrNoBuffer
	}
	mem := r.arena.Buffer(buf)
	got := r.readQueued(mem[bufferOff:])
	if n := h.len; got != int(n)+port.VNetHdrLen {
		r.arena.Put(buf) // longer than a buffer, or lost
		r.drop(h, &r.truncated)
		return false, nil
	}
	off, n := uint64(bufferOff+port.VNetHdrLen), h.len
	if st&unix.TP_STATUS_VLAN_VALID != 0 {
		off, n = retag(mem, off, h, st), n+tagLen
	}
	*f = port.Frame{Off: off, Len: n, Slot: buf, Flags: port.VNet | port.Buffered}
	h.status.Store(unix.TP_STATUS_KERNEL) // pairs with the kernel's look at its head
	return true, nil
}

// readQueued reads one queued frame behind its virtio_net_hdr and returns the length of both,
// negative if there was none.
func (r *Rx) readQueued(mem []byte) int {
	for range 3 {
		n, err := unix.Read(r.fd, mem)
		if err == nil {
			return n
		}
		// The socket's error comes before its frames, once.
		r.tell = r.tell || err == unix.ENETDOWN
	}
	return -1
}

// Bytes returns a frame behind its virtio_net_hdr.
func (r *Rx) Bytes(f *port.Frame) []byte {
	from, to := f.Off-port.VNetHdrLen, f.Off+uint64(f.Len)
	if f.Flags&port.Buffered != 0 {
		return r.arena.Buffer(f.Slot)[from:to]
	}
	return r.ring.mem[from:to]
}

// Release gives slots and buffers back.
func (r *Rx) Release(_ int, b []port.Frame) {
	for i := range b {
		if b[i].Flags&port.Buffered != 0 {
			r.arena.Put(b[i].Slot)
			continue
		}
		r.ring.hdr(b[i].Slot).status.Store(unix.TP_STATUS_KERNEL) // pairs with the kernel's look at its head
	}
}

// retag puts the tag of h back into the frame at mem[off:], by moving what is in front of it
// down, and returns where the frame starts now.
func retag(mem []byte, off uint64, h *slotHdr, st uint32) uint64 {
	tpid := uint16(unix.ETH_P_8021Q)
	if st&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = h.tpid
	}
	const head = port.VNetHdrLen + macLen
	p := mem[off-port.VNetHdrLen-tagLen : off+macLen]
	copy(p[:head], p[tagLen:])
	binary.BigEndian.PutUint16(p[head:], tpid)
	binary.BigEndian.PutUint16(p[head+2:], h.tci)
	shiftHdr(p, tagLen)
	return off - tagLen
}
