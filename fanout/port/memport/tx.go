package memport

import "github.com/epair-net/epair/fanout/port"

// Tx sends into a Device.
type Tx struct {
	d      *Device
	worker int
}

// Send copies frames out.
func (x *Tx) Send(src port.Source, b []port.Frame, t *port.Tally) {
	x.d.mu.Lock()
	for i := range b {
		x.send(src, &b[i], t)
	}
	x.d.mu.Unlock()
	src.Release(x.worker, b)
}

func (x *Tx) send(src port.Source, f *port.Frame, t *port.Tally) {
	plain := [port.VNetHdrLen]byte{}
	hdr, frame := plain[:], src.Bytes(f)
	if f.Flags&port.VNet != 0 {
		hdr, frame = frame[:port.VNetHdrLen], frame[port.VNetHdrLen:]
	}
	to, why := x.d.room(hdr, frame)
	if to == nil {
		t.Drops[why]++
		return
	}
	*to = append(append((*to)[:0], hdr...), frame...)
	t.Frames++
	t.Bytes += uint64(f.Len)
}

// Queued is 0: what was sent has left.
func (x *Tx) Queued() int { return 0 }

// Close does nothing.
func (x *Tx) Close() error { return nil }
