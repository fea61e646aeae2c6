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
// oldest frame of the queue's ring, so a queue has one reader.
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

// End is one TAP queue, from which ports are opened. It implements port.Opener.
//
// Concurrency contract: SetMTU may be called from any goroutine, the rest from one at a time.
type End struct {
	fd       int
	maxFrame atomic.Uint32 // longest frame without segmentation; written by SetMTU, read by each Tx
}

var _ port.Opener = (*End)(nil)

// New returns the end whose queue is fd: a non-blocking descriptor of a TAP
// device opened with IFF_TAP|IFF_NO_PI|IFF_VNET_HDR. mtu is the device's.
//
// borrowed: fd stays the caller's, who closes it after the last port was opened. Each
// port has a duplicate of its own, so the device lives until all are closed.
func New(fd, mtu int) (*End, error) {
	req, err := queueInfo(fd)
	if err != nil {
		return nil, fmt.Errorf("use tap queue: %w (open it with TUNSETIFF)", err)
	}
	if got := int(req.Uint16()); got&kind != kind {
		return nil, fmt.Errorf("use tap queue of %s: flags %#x (open it with IFF_TAP|IFF_NO_PI|IFF_VNET_HDR)", req.Name(), got)
	}
	n, err := unix.IoctlGetInt(fd, unix.TUNGETVNETHDRSZ)
	if err != nil {
		return nil, fmt.Errorf("use tap queue of %s: read header size: %w", req.Name(), err)
	}
	if n != port.VNetHdrLen {
		return nil, fmt.Errorf("use tap queue of %s: virtio_net_hdr of %d bytes (set TUNSETVNETHDRSZ to %d)", req.Name(), n, port.VNetHdrLen)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("use tap queue of %s: %w", req.Name(), err)
	}
	if flags&unix.O_NONBLOCK == 0 {
		return nil, fmt.Errorf("use tap queue of %s: it blocks (set O_NONBLOCK)", req.Name())
	}
	e := &End{fd: fd}
	e.SetMTU(mtu)
	return e, nil
}

// SetMTU tells that the device's MTU has changed.
//
// A TAP takes frames of any length from its descriptor, where a veth drops those
// that is_skb_forwardable (net/core/dev.h) finds too long for the receiving
// device: so the Tx does that.
func (e *End) SetMTU(mtu int) { e.maxFrame.Store(uint32(mtu + ethHdrLen + vlanLen)) }

// OpenRx opens the queue's only reader.
func (e *End) OpenRx(w port.Worker) (port.Rx, error) {
	fd, err := dup(e.fd)
	if err != nil {
		return nil, err
	}
	r := &Rx{fd: fd, arena: w.Arena}
	if r.base, err = dropped(fd); err != nil {
		return nil, fmt.Errorf("open tap receiver: %w", closing(fd, err))
	}
	return r, nil
}

// OpenTx opens a writer for one worker.
func (e *End) OpenTx(w port.Worker) (port.Tx, error) {
	fd, err := dup(e.fd)
	if err != nil {
		return nil, err
	}
	return newTx(fd, w.ID, &e.maxFrame), nil
}
