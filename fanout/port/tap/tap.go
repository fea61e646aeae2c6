// Package tap is the port on a TAP device: frames are read from its queue's
// descriptor into Arena buffers, and written to it from wherever they are.
//
//	namespace            queue                 worker
//	stack ──▶ tapN ──▶ ring of the queue ──▶ Rx.Receive  read(2) per frame
//	stack ◀── tapN ◀─────────────────────── Tx.Send      write(2) per frame
//
// A write runs the namespace's whole receive path before it returns
// (tun_get_user and netif_receive_skb, drivers/net/tun.c), so nothing is ever queued in
// a Tx and any number of workers may write to one queue. A read takes the
// oldest frame of the queue's ring, so a queue has one reader. A device can have one queue per worker: spread.go
// says how the kernel spreads frames over them, and why each flow keeps its order.
//
// What the kernel says becomes this:
//
//	read   EAGAIN   nothing there; also while the interface is down, which is no error here
//	read   EBADFD   port.ErrGone: the interface was deleted
//	write  EIO      port.TxLinkDown: the interface is down
//	write  EBADFD   port.TxGone
//	write  EINVAL   port.TxInvalid: the virtio_net_hdr doesn't fit the frame
package tap

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// kind is what the kernel must say of a queue. IFF_NO_PI is needed too, but can't be asked for:
// TUNGETIFF uses its bit to say that there is no filter (IFF_NOFILTER, linux/if_tun.h).
const kind = unix.IFF_TAP | unix.IFF_VNET_HDR

// End is one TAP, from whose queues ports are opened. It implements port.Spreader.
//
// Concurrency contract: one goroutine at a time.
type End struct {
	fd     int // the first queue
	limit  atomic.Uint32
	spread spread
}

var _ port.Spreader = (*End)(nil)

// New returns the end whose first queue is fd: a non-blocking descriptor of a TAP
// device opened with IFF_TAP|IFF_NO_PI|IFF_VNET_HDR. mtu is the device's.
//
// borrowed: fd stays the caller's, who closes it after the last port was opened. Each
// port has a duplicate of its own, so the device lives until all are closed.
func New(fd, mtu int) (*End, error) {
	if err := checkQueue(fd, 0); err != nil {
		return nil, fmt.Errorf("use tap queue: %w", err)
	}
	e := &End{fd: fd}
	setLimit(&e.limit, mtu)
	return e, nil
}

// checkQueue tells what is wrong with a queue, which must have the flags of kind and these.
func checkQueue(fd int, more int) error {
	req, err := queueInfo(fd)
	if err != nil {
		return fmt.Errorf("%w (open it with TUNSETIFF)", err)
	}
	if got := int(req.Uint16()); got&(kind|more) != kind|more {
		return fmt.Errorf("%s has flags %#x (open it with IFF_TAP|IFF_NO_PI|IFF_VNET_HDR; all but the first with IFF_MULTI_QUEUE, and detach them)", req.Name(), got)
	}
	n, err := unix.IoctlGetInt(fd, unix.TUNGETVNETHDRSZ)
	if err != nil {
		return fmt.Errorf("read header size of %s: %w", req.Name(), err)
	}
	if n != port.VNetHdrLen {
		return fmt.Errorf("%s has a virtio_net_hdr of %d bytes (set TUNSETVNETHDRSZ to %d)", req.Name(), n, port.VNetHdrLen)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", req.Name(), err)
	}
	if flags&unix.O_NONBLOCK == 0 {
		return fmt.Errorf("%s blocks (set O_NONBLOCK)", req.Name())
	}
	return nil
}

// OpenRx opens the reader of the first queue; after Spread, that of the next.
func (e *End) OpenRx(w port.Worker) (port.Rx, error) {
	open := e.openRx
	if e.spread.size > 0 {
		open = e.openSpread
	}
	r, err := open(w)
	if err != nil {
		return nil, fmt.Errorf("open tap receiver: %w", err)
	}
	return r, nil
}

func (e *End) openRx(w port.Worker) (*Rx, error) {
	fd, err := dup(e.fd)
	if err != nil {
		return nil, err
	}
	r := &Rx{fd: fd, arena: w.Arena, limit: &e.limit, counts: true}
	d, err := readLink(fd)
	if err != nil {
		return nil, closing(fd, err)
	}
	r.base = d.dropped
	setLimit(r.limit, d.mtu)
	return r, nil
}

// OpenTx opens a writer for one worker. All write to the first queue, which is always attached.
func (e *End) OpenTx(w port.Worker) (port.Tx, error) {
	fd, err := dup(e.fd)
	if err != nil {
		return nil, err
	}
	return newTx(fd, w.ID, &e.limit), nil
}
