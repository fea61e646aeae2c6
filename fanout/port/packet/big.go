package packet

import (
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// linear is how much of a long frame goes into one piece: its headers, for who parses
// it later. The rest is in whole pages.
const linear = 256

// softRun is how many GSO frames are segmented by the kernel before the
// interface is tried again.
const softRun = 256

// sendBig sends one frame that fits no slot or is GSO.
func (x *Tx) sendBig(src port.Source, f *port.Frame, t *port.Tally, tr *tries) {
	mem := src.Bytes(f)
	if f.Flags&port.VNet == 0 {
		clear(x.s.buf[:port.VNetHdrLen])
		mem = x.s.buf[:port.VNetHdrLen+copy(x.s.buf[port.VNetHdrLen:], mem)]
	}
	var left bool
	switch gso := mem[hdrGSOType] != gsoNone; {
	case !gso:
		setLinear(mem, linear)
		left = x.sendWhole(src, f, mem, tr)
	case x.soft > 0:
		x.soft--
		left = x.sendSoft(mem, tr)
	default:
		left = x.sendWhole(src, f, mem, tr) || tr.why == port.TxBusy && x.learnSoft(mem, tr)
	}
	if left {
		t.Frames++
		t.Bytes += uint64(f.Len)
	} else {
		t.Drops[tr.why]++
	}
}

// sendWhole hands a frame to the driver as it is. The driver takes all of it or nothing.
func (x *Tx) sendWhole(src port.Source, f *port.Frame, mem []byte, tr *tries) bool {
	for {
		e := sendTo(x.s.bigFD, mem, &x.to)
		if e == 0 {
			return true
		}
		if !x.again(e, src, f, tr) {
			return false
		}
	}
}

// learnSoft tries a GSO frame that the interface didn't take in the way that lets
// the kernel segment it: a veth whose other side has an XDP program takes none whole,
// and refuses them as if its queue were full.
func (x *Tx) learnSoft(mem []byte, tr *tries) bool {
	if !x.sendSoft(mem, tr) {
		return false
	}
	x.soft = softRun
	return true
}

// sendSoft lets the kernel segment a GSO frame where it must. It isn't tried
// again: some segments may have left.
func (x *Tx) sendSoft(mem []byte, tr *tries) bool {
	switch sendTo(x.s.softFD, mem, &x.to) {
	case 0:
		return true
	case unix.ENXIO, unix.ENODEV, unix.ENETDOWN, unix.ENOBUFS, unix.EAGAIN, unix.ENOMEM:
		x.diagnose(tr)
	case unix.EINVAL:
		tr.why = port.TxInvalid
	default:
		tr.why = port.TxError
	}
	return false
}
