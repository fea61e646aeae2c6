package epair

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// Up sets the inner sides up, gives them their addresses, and returns when frames pass both
// ends. A dev end stays as it is, up or down. After an error the pair is to be deleted.
func (p *Pair) Up() error {
	if err := p.env.begin(); err != nil {
		return fmt.Errorf("set pair %s up: %w", p.cfg.Name, err)
	}
	defer p.env.life.RUnlock()
	for _, e := range p.ends() {
		if e.cfg.Kind == Dev {
			continue
		}
		if err := e.inside(e.setUp); err != nil {
			return fmt.Errorf("set pair %s up: %s: %w", p.cfg.Name, e.label(), denied(err))
		}
	}
	for _, e := range p.ends() {
		if e.cfg.Kind == Dev {
			continue
		}
		if err := errors.Join(e.inside(e.awaitCarrier), e.env.mon.refresh(e), e.closeSpace()); err != nil {
			return fmt.Errorf("set pair %s up: %s: %w", p.cfg.Name, e.label(), err)
		}
	}
	return nil
}

// setUp sets the inner side up, then adds the addresses: IPv6 ones want an interface that is up.
func (e *End) setUp(_ *netns.NS, h *netlink.Handle) error {
	if err := e.env.step("set inner side up"); err != nil {
		return err
	}
	if err := h.LinkSetUp(at(e.innerIndex)); err != nil {
		return err
	}
	for _, text := range e.cfg.Addresses {
		if err := e.env.step("add address"); err != nil {
			return err
		}
		if err := e.addAddress(h, text); err != nil {
			return fmt.Errorf("add address %s: %w", text, err)
		}
	}
	return nil
}

func (e *End) addAddress(h *netlink.Handle, text string) error {
	a, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	six := a.IP.To4() == nil
	if six {
		a.Flags = unix.IFA_F_NODAD // usable at once: the other side of the cable was made by us too
	}
	err = h.AddrAdd(at(e.innerIndex), a)
	if errors.Is(err, unix.EEXIST) {
		return nil // Up was called before
	}
	if six && errors.Is(err, unix.EACCES) {
		return errors.New("IPv6 is disabled there (net.ipv6.conf.*.disable_ipv6)")
	}
	return err
}

// awaitCarrier waits until the kernel lets frames through both sides. It announces
// the carrier (IFF_RUNNING) in the same section under its lock in which it then wakes the queues; one more request,
// which waits for that lock, makes sure of those.
func (e *End) awaitCarrier(_ *netns.NS, h *netlink.Handle) error {
	pause, start := time.Millisecond, time.Now()
	for {
		ok, err := e.bothRun(h)
		if err != nil {
			return err
		}
		if ok {
			_, err := e.bothRun(h)
			return err
		}
		if e.env.closing.Load() { // pairs with Close
			return ErrClosed
		}
		if time.Since(start) > e.env.patient {
			return fmt.Errorf("no carrier for %v: %w (has somebody set it down?)", e.env.patient, unix.ETIMEDOUT)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

func (e *End) bothRun(inner *netlink.Handle) (bool, error) {
	all, err := runs(inner, e.innerIndex)
	if err != nil || !all || e.cfg.Kind != Veth || e.direct {
		return all, err
	}
	err = e.outside(func(h *netlink.Handle) (err error) {
		all, err = runs(h, e.portIndex)
		return err
	})
	return all, err
}

func runs(h *netlink.Handle, index int) (bool, error) {
	l, err := h.LinkByIndex(index)
	if missing(err) {
		return false, errNoLink
	}
	if err != nil {
		return false, err
	}
	return running(l.Attrs()), nil
}
