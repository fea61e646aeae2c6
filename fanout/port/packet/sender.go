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
	// Qdisc sends through the interfaces' queueing disciplines instead of past them: for
	// interfaces whose owner shapes what leaves, or that can't segment themselves.
	Qdisc bool
}

// Sender sends a worker's frames into the interfaces of one network namespace: the
// kernel takes the interface from the address of each call, so that one ring serves all.
//
// Concurrency contract: a Sender and all its Tx belong to one worker.
type Sender struct {
	fd     int // has the ring
	bigFD  int // sends what fits no slot or is GSO
	softFD int // sends GSO frames that the interface can't take whole
	ring   *ring
	head   uint32 // the slot that is filled next, and the kernel's own head between calls
	room   int    // longest frame that fits a slot
	buf    []byte // one frame that fits no slot and has no virtio_net_hdr in front of it
	closed bool
}

// slotData is where in a transmit slot the kernel expects the virtio_net_hdr
// (tpacket_parse_header: TPACKET2_HDRLEN less its struct sockaddr_ll).
const slotData = slotHdrLen

// OpenSender opens the sockets. It is to be called on the worker's thread.
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
	s := &Sender{fd: -1, bigFD: -1, softFD: -1, room: c.SlotLen - slotData - port.VNetHdrLen}
	if err := s.open(&c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sender) open(c *SenderConfig) (err error) {
	opts := []option{
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2, "ring version"},
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1, "virtio_net_hdr"},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer, "send buffer (needs CAP_NET_ADMIN)"},
	}
	if s.softFD, err = newSocket(c.NetNS, opts...); err != nil {
		return err
	}
	if !c.Qdisc {
		opts = append(opts, option{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1, "qdisc bypass"})
	}
	if s.bigFD, err = newSocket(c.NetNS, opts...); err != nil {
		return err
	}
	if s.fd, err = newSocket(c.NetNS, opts...); err != nil {
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
	for _, fd := range []int{s.fd, s.bigFD, s.softFD} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return fmt.Errorf("close packet sender: %w", err)
	}
	return nil
}
