package tap

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

const (
	ethHdrLen = 14
	vlanLen   = 4
)

// gsoType is where a virtio_net_hdr says how the frame is to be segmented; 0: it is not.
const gsoType = 1

// Tx writes to a queue. It implements port.Tx.
type Tx struct {
	fd     int
	worker int
	limit  *atomic.Uint32 // End.limit
	asked  time.Time      // when the device's MTU was last read
	bare   vector         // for frames that have no virtio_net_hdr
}

var _ port.Tx = (*Tx)(nil)

// askEvery bounds how often a Tx reads the MTU for frames that are too long.
const askEvery = 100 * time.Millisecond

func newTx(fd, worker int, limit *atomic.Uint32) *Tx {
	x := &Tx{fd: fd, worker: worker, limit: limit}
	x.bare.init()
	return x
}

// Send writes the frames one by one. Each has left, or is dropped, when its write returns.
func (x *Tx) Send(src port.Source, b []port.Frame, t *port.Tally) {
	limit := x.limit.Load()
	for i := range b {
		f := &b[i]
		p := src.Bytes(f)
		if f.Len > limit && tooLong(f, p, limit) {
			if limit = x.readLimit(); tooLong(f, p, limit) {
				t.Drops[port.TxMTU]++
				continue
			}
		}
		var errno unix.Errno
		if f.Flags&port.VNet != 0 {
			errno = write(x.fd, p)
		} else {
			errno = x.bare.write(x.fd, p)
		}
		if errno == 0 {
			t.Frames++
			t.Bytes += uint64(f.Len)
		} else {
			t.Drops[reason(errno)]++
		}
	}
	src.Release(x.worker, b)
}

// setLimit sets the longest frame without segmentation: a tag may be on top of the MTU.
//
// A TAP takes frames of any length from its descriptor, where a veth drops those
// that is_skb_forwardable (net/core/dev.h) finds too long for the receiving
// device: so the Tx does that. Nobody tells it of a new MTU: a larger one is found by
// the first frame that needs it, a smaller one when the counters are read next (Rx.Stats).
func setLimit(limit *atomic.Uint32, mtu int) { limit.Store(uint32(mtu + ethHdrLen + vlanLen)) }

// readLimit asks the device, if that wasn't done just now.
func (x *Tx) readLimit() uint32 {
	if now := time.Now(); now.Sub(x.asked) >= askEvery {
		x.asked = now
		if d, err := readLink(x.fd); err == nil {
			setLimit(x.limit, d.mtu)
		}
	}
	return x.limit.Load()
}

// tooLong decides about a frame of more than limit bytes as is_skb_forwardable does:
// frames to be segmented pass. It measures without the outer tag when the driver carries that
// apart from the frame; here nobody can tell, so a tag is always allowed for.
func tooLong(f *port.Frame, p []byte, limit uint32) bool {
	if f.Flags&port.VNet != 0 {
		if p[gsoType] != unix.VIRTIO_NET_HDR_GSO_NONE {
			return false
		}
		p = p[port.VNetHdrLen:]
	}
	switch binary.BigEndian.Uint16(p[ethHdrLen-2:]) {
	case unix.ETH_P_8021Q, unix.ETH_P_8021AD:
		limit += vlanLen
	}
	return f.Len > limit
}

// reason says why a write failed (tun_get_user, drivers/net/tun.c).
func reason(errno unix.Errno) port.Reason {
	switch errno {
	case unix.EIO, unix.ENETDOWN:
		return port.TxLinkDown
	case unix.EBADFD:
		return port.TxGone
	case unix.EINVAL:
		return port.TxInvalid
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		return port.TxBusy
	}
	return port.TxError
}

// Queued is 0: see Send.
func (x *Tx) Queued() int { return 0 }

// Close closes the port's own descriptor.
func (x *Tx) Close() error { return closeOnce(&x.fd) }
