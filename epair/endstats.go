package epair

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/netns"
)

// Stats is what a device has counted since it was created (ip -s link).
type Stats struct {
	RxFrames, RxBytes, RxDropped, RxErrors, RxMissed uint64
	TxFrames, TxBytes, TxDropped, TxErrors           uint64
}

// Stats reads the counters of the device that ports open: for a veth the
// outer side, which transmits into the namespace and receives from it; for a tap and in a direct pair the
// device, whose namespace sees it the other way round.
func (e *End) Stats() (Stats, error) {
	if err := e.env.begin(); err != nil {
		return Stats{}, fmt.Errorf("read counters of %s: %w", e.label(), err)
	}
	defer e.env.life.RUnlock()
	var l netlink.Link
	var err error
	if e.cfg.Kind == Veth && !e.direct {
		err = e.outside(func(h *netlink.Handle) (err error) {
			l, err = h.LinkByIndex(e.portIndex)
			return err
		})
	} else {
		err = e.inside(func(_ *netns.NS, h *netlink.Handle) (err error) {
			l, err = h.LinkByIndex(e.innerIndex)
			return err
		})
	}
	if missing(err) {
		err = errNoLink
	}
	if err != nil {
		return Stats{}, fmt.Errorf("read counters of %s: %w", e.label(), err)
	}
	s := l.Attrs().Statistics
	if s == nil {
		return Stats{}, fmt.Errorf("read counters of %s: the kernel gave none", e.label())
	}
	return Stats{
		RxFrames: s.RxPackets, RxBytes: s.RxBytes, RxDropped: s.RxDropped, RxErrors: s.RxErrors, RxMissed: s.RxMissedErrors,
		TxFrames: s.TxPackets, TxBytes: s.TxBytes, TxDropped: s.TxDropped, TxErrors: s.TxErrors,
	}, nil
}
