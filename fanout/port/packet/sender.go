package packet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// sendBuffer bounds what the kernel holds of a socket's frames: a limit, not an allocation.
const sendBuffer = 4 << 20

// SenderConfig says how to send. Zero sizes take the defaults.
type SenderConfig struct {
	NetNS   int // descriptor of the interfaces' network namespace; 0 is the caller's
	Slots   int // a power of two; 256
	SlotLen int // a power of two from 256 to 65536; 2048
}

// Sender sends a worker's frames into the interfaces of one network namespace: the
// kernel takes the interface from the address of each call, so that one ring serves all.
//
// Concurrency contract: a Sender and all its Tx belong to one worker.
type Sender struct {
	fd     int // has the ring
	bigFD  int // sends what fits no slot
	ring   *ring
	head   uint32 // the slot that is filled next, and the kernel's own head between calls
	room   int    // longest frame that fits a slot
	buf    []byte // one frame that fits no slot and has no virtio_net_hdr in front of it
	closed bool
}

// slotData is where in a transmit slot the kernel expects the virtio_net_hdr
// (tpacket_parse_header: TPACKET2_HDRLEN less its struct sockaddr_ll).
const slotData = slotHdrLen

// OpenSender opens the sockets.
func OpenSender(c SenderConfig) (*Sender, error) {
	if c.Slots == 0 {
		c.Slots = 256
	}
	if c.SlotLen == 0 {
		c.SlotLen = 2048
	}
	if err := checkRing(c.Slots, c.SlotLen); err != nil {
		return nil, err
	}
	s := &Sender{fd: -1, bigFD: -1, room: c.SlotLen - slotData - port.VNetHdrLen}
	if err := inNetNS(c.NetNS, func() error { return s.open(&c) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sender) open(c *SenderConfig) (err error) {
	opts := []option{
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2, "ring version"},
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1, "virtio_net_hdr"},
		{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1, "qdisc bypass"},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer, "send buffer (needs CAP_NET_ADMIN)"},
	}
	if s.fd, err = newSocket(opts...); err != nil {
		return err
	}
	if s.bigFD, err = newSocket(opts...); err != nil {
		return err
	}
	if s.ring, err = newRing(s.fd, unix.PACKET_TX_RING, c.Slots, c.SlotLen); err != nil {
		return err
	}
	s.buf = make([]byte, port.VNetHdrLen+port.MaxFrameLen)
	return nil
}

// Close frees the sockets. No Tx of the Sender may be used any more.
func (s *Sender) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.ring != nil {
		err = s.ring.close()
	}
	for _, fd := range []int{s.fd, s.bigFD} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return fmt.Errorf("close packet sender: %w", err)
	}
	return nil
}

// stage copies the frames at the start of b that fit slots into the ring, as many as
// there are free slots for, at most max. It returns how many.
func (s *Sender) stage(src port.Source, b []port.Frame, max int) int {
	n := 0
	for ; n < len(b) && n < max && int(b[n].Len) <= s.room; n++ {
		h := s.ring.hdr(s.head + uint32(n))
		if h.status.Load() != unix.TP_STATUS_AVAILABLE { // pairs with tpacket_destruct_skb's store
			break
		}
		f := &b[n]
		p := s.ring.slot(s.head + uint32(n))[slotData:]
		if f.Flags&port.VNet != 0 {
			copy(p, src.Bytes(f))
		} else {
			clear(p[:port.VNetHdrLen])
			copy(p[port.VNetHdrLen:], src.Bytes(f))
		}
		// All of the frame in one piece: the kernel would put only 14 bytes there
		// and let the rest point into the ring, which veth then copies once more.
		setLinear(p, int(f.Len))
		h.len = port.VNetHdrLen + f.Len
		h.status.Store(unix.TP_STATUS_SEND_REQUEST) // pairs with tpacket_snd's look at its head
	}
	return n
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
