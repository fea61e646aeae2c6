package packet

// The receive path, in the order in which a frame passes it:
//
//	step                                      who           blocks
//	1 the kernel copies the frame into the
//	  slot at its head (tpacket_rcv); what is
//	  longer it also queues whole             softirq
//	2 Receive walks the slots from its head   owner         never
//	3 a queued frame is read into an Arena
//	  buffer, its slot goes back at once      owner         never
//	4 a VLAN tag goes back to its place       owner         never
//	5 Release gives the slot or buffer back   any worker    never
//
// A slot belongs to whom its status says:
//
//	status            owner     next
//	TP_STATUS_KERNEL  kernel    USER, when a frame is in it
//	TP_STATUS_USER    Receive   taken, or KERNEL
//	taken             a worker  KERNEL, by Release
//
// The kernel writes only into the slot at its own head, and only when that says KERNEL.
// So a slot that is held stops the ring there: later frames are dropped and counted.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// taken marks a slot whose frame a worker holds. Not a bit that the kernel knows.
const taken = 1 << 16

// headroom is kept in front of the virtio_net_hdr, for the tag that is put back.
const headroom = 16

// bufferOff is where in an Arena buffer a frame's virtio_net_hdr goes: a tag's room from its start.
const bufferOff = 6

// macLen is the length of the two addresses in front of a tag.
const macLen = 12

// receiveBuffer bounds the frames that are queued because they fit no slot: a
// limit, not an allocation. Where it is reached they are truncated.
const receiveBuffer = 8 << 20

// Rx receives an interface's frames.
//
// Concurrency contract: port.Rx's.
type Rx struct {
	fd       int
	ifindex  int
	group    *group // of the end's halves, if there are several
	ring     *ring
	arena    *port.Arena
	head     uint32 // the slot that Receive looks at next
	tell     bool   // the socket said that the interface went down, and Receive hasn't yet
	down     bool   // the last that Receive said of the interface
	gone     bool
	checked  time.Time // when the kernel was last asked how the interface is
	emptied  uint64    // slots
	asked    uint64    // emptied when Receive last asked for the kernel's counts
	quiet    quiet     // what was seen when nothing came
	repaired bool      // the ring was replaced, and the loss isn't counted yet
	err      error     // what made the port useless
	// What Receive dropped; written by the owner only.
	truncated, invalid atomic.Uint64

	mu     sync.Mutex // guards Stats against Close
	seen   uint64     // frames that reached the socket, as far as the kernel was asked
	full   uint64     // of these, lost because no slot was free
	closed bool       // written by the owner
}

// RxConfig says what to receive. Zero sizes take the defaults.
type RxConfig struct {
	NetNS   int // descriptor of the interface's network namespace; 0 is the caller's
	Ifindex int
	Slots   int // a power of two; 1024
	SlotLen int // a power of two from 256 to 65536; 2048
	// Promiscuous lets an interface that filters addresses receive all, as long
	// as the Rx is open: a network card needs it, a veth doesn't.
	Promiscuous bool
}

func (c *RxConfig) setDefaults() error {
	if c.Slots == 0 {
		c.Slots = 1024
	}
	if c.SlotLen == 0 {
		c.SlotLen = 2048
	}
	return checkRing(c.Slots, c.SlotLen)
}

// checkRing refuses what newRing can't make.
func checkRing(slots, slotLen int) error {
	switch {
	case slots < 2 || slots&(slots-1) != 0:
		return fmt.Errorf("make a ring of %d slots: not a power of two", slots)
	case slotLen < 256 || slotLen > blockLen || slotLen&(slotLen-1) != 0:
		return fmt.Errorf("make a ring of slots of %d bytes: not a power of two from 256 to %d", slotLen, blockLen)
	}
	return nil
}

// OpenRx starts receiving all frames that come in by an interface; what is sent
// by it, by us or others, is not received. Frames that fit no slot need
// w.Arena. It is to be called on the worker's thread: the ring is made on that one's NUMA node.
func OpenRx(c RxConfig, w port.Worker) (*Rx, error) { return openRx(c, w, nil) }

// openRx opens a half that is alone or one of a group, then deaf until it has joined.
func openRx(c RxConfig, w port.Worker, g *group) (*Rx, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	r := &Rx{arena: w.Arena, ifindex: c.Ifindex, group: g}
	if err := r.open(&c); err != nil {
		return nil, fmt.Errorf("receive from interface %d: %w", c.Ifindex, err)
	}
	return r, nil
}

func (r *Rx) open(c *RxConfig) (err error) {
	r.fd, err = newSocket(c.NetNS,
		option{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2, "ring version"},
		option{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1, "virtio_net_hdr"},
		option{unix.SOL_PACKET, unix.PACKET_RESERVE, headroom, "headroom"},
		option{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1, "ignore outgoing"},
		option{unix.SOL_PACKET, unix.PACKET_COPY_THRESH, 1, "copy threshold"},
		option{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer, "receive buffer (needs CAP_NET_ADMIN)"},
	)
	if err != nil {
		return err
	}
	if r.ring, err = newRing(r.fd, unix.PACKET_RX_RING, c.Slots, c.SlotLen); err != nil {
		return errors.Join(err, unix.Close(r.fd))
	}
	if r.group != nil {
		if err = deafen(r.fd); err != nil {
			return errors.Join(err, r.Close())
		}
	}
	// Nothing was received until here: the socket had no protocol.
	if err = unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: ethAll, Ifindex: c.Ifindex}); err != nil {
		return errors.Join(fmt.Errorf("bind packet socket: %w", err), r.Close())
	}
	if c.Promiscuous {
		m := unix.PacketMreq{Ifindex: int32(c.Ifindex), Type: unix.PACKET_MR_PROMISC}
		if err = unix.SetsockoptPacketMreq(r.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return errors.Join(fmt.Errorf("make the interface promiscuous: %w", err), r.Close())
		}
	}
	return nil
}

// FD returns the socket.
func (r *Rx) FD() int { return r.fd }

// Receive returns the frames in the ring. It never blocks.
func (r *Rx) Receive(b []port.Frame) (int, error) {
	switch {
	case r.closed:
		return 0, port.ErrClosed
	case r.gone:
		return 0, port.ErrGone
	case r.err != nil:
		return 0, r.err
	}
	if r.emptied-r.asked > askAfter {
		r.ask()
	}
	n := 0
	for n < len(b) {
		h := r.ring.hdr(r.head)
		st := h.status.Load() // pairs with the kernel's status store behind the frame
		if st&unix.TP_STATUS_USER == 0 {
			return n, r.health(n, st)
		}
		ok, err := r.take(&b[n], h, st)
		if err != nil {
			return n, err
		}
		r.head++
		r.emptied++
		if ok {
			n++
		}
	}
	return n, nil
}
