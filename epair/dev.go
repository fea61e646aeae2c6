package epair

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// attachDev finds the interface of a dev end. Nothing of it is changed, now or later.
func (e *End) attachDev() error {
	if err := e.env.step("attach dev"); err != nil {
		return err
	}
	h, err := open(e.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(e.cfg.Name)
	if missing(err) {
		return fmt.Errorf("%w (ip link shows the interfaces of this namespace)", unix.ENODEV)
	}
	if err != nil {
		return err
	}
	a := l.Attrs()
	if a.Flags&net.FlagLoopback != 0 || a.EncapType != "ether" {
		return fmt.Errorf("its link type is %s (a pair carries Ethernet frames)", a.EncapType)
	}
	if e.mtu != 0 && e.mtu != a.MTU {
		return fmt.Errorf("its mtu is %d, not %d (leave mtu out, or: ip link set %s mtu %d)", a.MTU, e.mtu, e.cfg.Name, e.mtu)
	}
	if e.nsPath, err = netns.Path(e.cfg.netns()); err != nil {
		return err
	}
	if err := e.env.claimDev(devID{e.ns.ID(), a.Index}, e.pair); err != nil {
		return err
	}
	e.claimed = true
	e.portIndex, e.innerIndex, e.devNS = a.Index, a.Index, e.ns
	e.mtu, e.mac = a.MTU, a.HardwareAddr
	return nil
}

// detachDev lets go of the interface.
func (e *End) detachDev() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claimed {
		e.env.unclaimDev(devID{e.devNS.ID(), e.portIndex})
		e.claimed = false
	}
}
