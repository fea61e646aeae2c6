package packet

import (
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// again judges why the kernel didn't take f. It returns true after a yield if f
// may be tried again; else tr.why is the reason to drop it.
func (x *Tx) again(e unix.Errno, src port.Source, f *port.Frame, tr *tries) bool {
	switch e {
	case unix.ENXIO, unix.ENODEV:
		tr.why, tr.hopeless = port.TxGone, true
		return false
	case unix.ENETDOWN:
		tr.why, tr.hopeless = port.TxLinkDown, true
		return false
	case unix.EMSGSIZE:
		tr.why = port.TxMTU
		return false
	case unix.EINVAL:
		tr.why = port.TxInvalid
		return false
	case 0, unix.ENOBUFS, unix.EAGAIN, unix.ENOMEM, unix.EINTR:
		// 0: it ran out of memory after the first frames.
	default:
		tr.why = port.TxError
		return false
	}
	if x.tooLong(src, f) {
		tr.why = port.TxMTU
		return false
	}
	if tr.left > 0 && !x.dead {
		tr.left--
		yield()
		return true
	}
	x.diagnose(tr)
	x.dead = tr.hopeless
	return false
}

// tooLong tells whether f is longer than the interface takes. A device
// tells that apart from a full queue no more than a veth does.
func (x *Tx) tooLong(src port.Source, f *port.Frame) bool {
	if isGSO(f, src.Bytes(f)) || int(f.Len) <= x.longest() {
		return false
	}
	x.readMTU()
	return int(f.Len) > x.longest()
}

// longest is the longest plain frame that an Ethernet device takes from another (is_skb_forwardable).
func (x *Tx) longest() int { return x.mtu + minFrame + tagLen }

// diagnose finds out why the interface takes nothing.
func (x *Tx) diagnose(tr *tries) {
	tr.why = port.TxBusy
	if x.name() != nil {
		tr.why, tr.hopeless = port.TxGone, true
		return
	}
	x.readMTU()
	if err := unix.IoctlIfreq(x.s.bigFD, unix.SIOCGIFFLAGS, &x.ifreq); err != nil {
		return
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING
	if x.ifreq.Uint16()&up != up {
		tr.why, tr.hopeless = port.TxLinkDown, true
	}
}

// name looks the interface's name up, for the calls that want it.
func (x *Tx) name() error {
	x.ifreq.SetUint32(uint32(x.to.Ifindex))
	return unix.IoctlIfreq(x.s.bigFD, unix.SIOCGIFNAME, &x.ifreq)
}

func (x *Tx) readMTU() {
	if x.name() != nil {
		return
	}
	if err := unix.IoctlIfreq(x.s.bigFD, unix.SIOCGIFMTU, &x.ifreq); err == nil {
		x.mtu = int(x.ifreq.Uint32())
	}
}

// yield lets others run on this CPU. It lasts as long as they like.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
