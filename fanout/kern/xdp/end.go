package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
	"github.com/epair-net/epair/internal/netns"
)

// end is one end of a pair. Only the outer device's namespace is held: the pair's owner holds
// it as well. Of the inner side nothing is needed once the program is there.
type end struct {
	outer kern.Device // NetNS is ours
	inner bool        // there is an inner side
	rings int         // that frames to the end wait in; at least 1
	id    device      // of outer

	noted   bool      // in epair_lost
	in, out link.Link // programs on outer and inner
	notes   []string
}

// device is struct epair_device.
type device struct{ Cookie, Ifindex uint64 }

// newEnd looks at the devices. It changes nothing.
func newEnd(c *kern.End) (*end, error) {
	if c.Outer.Ifindex == 0 {
		return nil, fmt.Errorf("%w: %s has no outer device (datapath direct is for such a pair)", kern.ErrRefused, c.Inner.Name)
	}
	e := &end{outer: c.Outer, inner: c.Inner.Ifindex != 0, rings: 1}
	notes, err := check(c)
	if err != nil {
		return nil, err
	}
	e.notes = notes
	if e.inner {
		if e.rings, err = rings(c.Inner); err != nil {
			return nil, err
		}
	}
	if e.id, err = identify(c.Outer); err != nil {
		return nil, err
	}
	if e.outer.NetNS, err = unix.FcntlInt(uintptr(c.Outer.NetNS), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("keep namespace of %s: %w", c.Outer.Name, err)
	}
	return e, nil
}

// identify asks for what programs tell the device by: it is the only one of that index in its namespace.
func identify(d kern.Device) (id device, err error) {
	err = netns.Do(d.NetNS, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		id.Cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return id, fmt.Errorf("identify namespace of %s: %w", d.Name, err)
	}
	id.Ifindex = uint64(d.Ifindex)
	return id, nil
}

// attachOut attaches the program that lets frames out to the inner side. The namespace of the inner side
// is borrowed from New's caller.
func (e *end) attachOut(p *ebpf.Program, inner kern.Device) (err error) {
	if !e.inner {
		return nil
	}
	e.out, err = attach(p, inner)
	return err
}

// attachIn attaches the program that takes frames in to the outer device.
func (e *end) attachIn(p *ebpf.Program) (err error) {
	e.in, err = attach(p, e.outer)
	return err
}

// attach attaches a program by a link, which goes with this process. A program that is there already
// stays: the kernel lets a link replace none.
func attach(p *ebpf.Program, d kern.Device) (l link.Link, err error) {
	err = netns.Do(d.NetNS, func() error {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: d.Ifindex, Flags: link.XDPDriverMode})
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) { // dev_xdp_attach
			return fmt.Errorf("%w: %s (remove it: ip link set dev %s xdp off)", kern.ErrRefused, foreign(d), d.Name)
		}
		return err
	})
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, kern.ErrRefused):
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, ebpf.ErrNotSupported):
		err = fmt.Errorf("%w: its driver has no native XDP (use datapath tc or user)", kern.ErrRefused)
	case errors.Is(err, unix.ERANGE): // veth_xdp_set
		err = fmt.Errorf("%w: the MTU of its peer is too large for XDP (lower it)", kern.ErrRefused)
	case errors.Is(err, unix.ENOSPC): // veth_xdp_set
		err = fmt.Errorf("%w: it has fewer receive queues than its peer transmit queues (create it with as many: numrxqueues)", kern.ErrRefused)
	}
	return nil, fmt.Errorf("attach XDP program to %s: %w", d.Name, kern.Explain(err))
}

// foreign says which program is on a device. It runs in the device's namespace.
func foreign(d kern.Device) string {
	what := "another XDP program is there"
	l, err := netlink.LinkByIndex(d.Ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return what
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(l.Attrs().Xdp.ProgId))
	if err != nil {
		return what
	}
	defer p.Close()
	if info, err := p.Info(); err == nil {
		what = fmt.Sprintf("XDP program %q (ID %d) is there, which isn't ours", info.Name, l.Attrs().Xdp.ProgId)
	}
	return what
}

// devValue is struct bpf_devmap_val.
type devValue struct{ Ifindex, Program uint32 }

// takes refuses a device that takes no frames from XDP.
func (e *end) takes() error {
	can, err := napi.TakesXDP(e.outer)
	if err == nil && !can {
		err = fmt.Errorf("%w: %s takes no frames from XDP (%s)", kern.ErrRefused, e.outer.Name, e.cure())
	}
	return err
}

// connect lets frames leave by the end, at a port of the device map, through a program or none. Of what is
// there already it takes the place at once.
func (e *end) connect(s *shared, port uint32, egress *ebpf.Program) error {
	v := devValue{Ifindex: uint32(e.outer.Ifindex)}
	if egress != nil {
		v.Program = uint32(egress.FD())
	}
	err := netns.Do(e.outer.NetNS, func() error { return s.o.EpairDevs.Put(port, v) })
	if err != nil {
		return fmt.Errorf("put %s into the device map: %w", e.outer.Name, kern.Explain(err))
	}
	return nil
}

// cure says what to do for a device that takes no frames from XDP.
func (e *end) cure() string {
	if e.inner { // veth_set_xdp_features
		return "it needs as many receive queues as its peer has transmit queues"
	}
	return "a veth does when its peer has GRO on: ethtool -K PEER gro on, and as many transmit queues as it has receive queues; of other drivers some do"
}

// running says whether the outer device, and with it the inner side, is up.
func (e *end) running() (up bool) {
	err := netns.Do(e.outer.NetNS, func() error {
		l, err := netlink.LinkByIndex(e.outer.Ifindex)
		if err == nil {
			const needs = unix.IFF_UP | unix.IFF_LOWER_UP
			up = l.Attrs().RawFlags&needs == needs
		}
		return err
	})
	return err == nil && up
}

// detach takes the programs off: first the one that takes frames in.
func (e *end) detach() error {
	var errs []error
	for _, l := range []*link.Link{&e.in, &e.out} {
		if *l == nil {
			continue
		}
		// Who looks at all links of the machine at this moment would hold this one.
		errs = append(errs, (*l).Detach(), (*l).Close())
		*l = nil
	}
	return errors.Join(errs...)
}

// close gives up the rest.
func (e *end) close(s *shared) error {
	var errs []error
	if e.noted {
		errs = append(errs, s.forgetLosses(e.id, !e.inner))
	}
	return errors.Join(append(errs, unix.Close(e.outer.NetNS))...)
}
