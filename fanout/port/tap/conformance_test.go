package tap

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

func TestConformance(t *testing.T) {
	for name, mtu := range map[string]int{"mtu 1500": 1500, "mtu 9000": 9000} {
		caps := porttest.Caps{MaxFrame: mtu + 14, Ring: 512, GSO: true, Arena: true}
		t.Run(name, func(t *testing.T) {
			porttest.Run(t, caps, func(t *testing.T) *porttest.Rig { return newRig(t, mtu) })
		})
	}
}

// newRig is two TAPs, each in a namespace of its own that is held by nothing else.
//
//	A.Far ── tap0 in namespace 1 ── queue ── A      B ── queue ── tap0 in namespace 2 ── B.Far
func newRig(t *testing.T, mtu int) *porttest.Rig {
	t.Helper()
	arena := newArena(t, port.MaxBatch)
	r := &porttest.Rig{Arena: arena}
	for _, e := range []*porttest.End{&r.A, &r.B} {
		*e = newRigEnd(t, arena, mtu)
	}
	return r
}

func newRigEnd(t *testing.T, arena *port.Arena, mtu int) (e porttest.End) {
	t.Helper()
	d := newTAP(t, "tap0", mtu)
	e = d.rigEnd(t)
	e.Rx, e.Tx = d.open(t, port.Worker{Arena: arena}, mtu)
	return e
}

// rigEnd is the end's world, without a port.
func (d *device) rigEnd(t *testing.T) (e porttest.End) {
	t.Helper()
	e.Far = lossyFar{d.far(t)}
	e.SetLink = func(up bool) error { return porttest.SetLink(d.ns, d.name, up) }
	e.Delete = func() error { return porttest.DeleteLink(d.ns, d.name) }
	e.DeleteNS = d.ns.Close
	return e
}

// lossyFar takes frames for which the queue's ring has no room, as a wire does: the device
// counts them as lost, and so does Rx.Stats.
type lossyFar struct{ *porttest.PacketFar }

func (f lossyFar) Send(h *porttest.Hdr, frame []byte) error {
	err := f.PacketFar.Send(h, frame)
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}
