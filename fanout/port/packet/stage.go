package packet

import (
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// stage copies the frames at the start of b that go by the ring into it, as many as
// there are free slots for, at most max. It returns how many, and whether what
// stopped it is a frame that doesn't go by the ring.
func (s *Sender) stage(src port.Source, b []port.Frame, max int) (n int, big bool) {
	for ; n < len(b) && n < max; n++ {
		f := &b[n]
		mem := src.Bytes(f)
		if int(f.Len) > s.room || isGSO(f, mem) {
			return n, true
		}
		h := s.ring.hdr(s.head + uint32(n))
		if h.status.Load() != unix.TP_STATUS_AVAILABLE { // pairs with tpacket_destruct_skb's store
			return n, false
		}
		p := s.ring.slot(s.head + uint32(n))[slotData:]
		if f.Flags&port.VNet != 0 {
			copy(p, mem)
		} else {
			clear(p[:port.VNetHdrLen])
			copy(p[port.VNetHdrLen:], mem)
		}
		// All of the frame in one piece: the kernel would put only 14 bytes there
		// and let the rest point into the ring, which veth then copies once more.
		setLinear(p, int(f.Len))
		h.len = port.VNetHdrLen + f.Len
		h.status.Store(unix.TP_STATUS_SEND_REQUEST) // pairs with tpacket_snd's look at its head
	}
	return n, false
}

// consumed counts the slots of n staged ones that the kernel took.
func (s *Sender) consumed(n int) int {
	for i := range n {
		switch s.ring.hdr(s.head + uint32(i)).status.Load() {
		case unix.TP_STATUS_SEND_REQUEST, unix.TP_STATUS_WRONG_FORMAT:
			return i // it stopped here, and takes slots in order only
		}
	}
	return n
}

// unstage takes n staged slots back that the kernel didn't take. Its head and ours agree then.
func (s *Sender) unstage(n int) {
	for i := range n {
		s.ring.hdr(s.head + uint32(i)).status.Store(unix.TP_STATUS_AVAILABLE)
	}
}
