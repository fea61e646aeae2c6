package tap

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// queueInfo returns the device's name, as it is now, and the queue's flags.
func queueInfo(fd int) (*unix.Ifreq, error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil {
		return nil, fmt.Errorf("read tap device of descriptor %d: %w", fd, err)
	}
	return req, nil
}

// state is what a port asks of its device.
type state struct {
	dropped uint64 // tx_dropped: frames that its stack sent and that found a queue's ring full (tun_net_xmit)
	mtu     int
}

// readLink asks the kernel for the device of a queue, which takes tens of microseconds.
//
// The way there leads from the queue each time: the device may have been renamed or
// moved, and a socket kept in its namespace would keep the namespace alive.
func readLink(fd int) (d state, err error) {
	req, err := queueInfo(fd)
	if err != nil {
		return d, err
	}
	ns, err := unix.IoctlRetInt(fd, unix.TUNGETDEVNETNS)
	if err != nil {
		return d, fmt.Errorf("find namespace of %s: %w", req.Name(), err)
	}
	defer func() { err = errors.Join(err, unix.Close(ns)) }()
	err = netns.Do(ns, func() error {
		l, err := netlink.LinkByName(req.Name())
		if err != nil {
			return err
		}
		d = state{l.Attrs().Statistics.TxDropped, l.Attrs().MTU}
		return nil
	})
	if err != nil {
		return d, fmt.Errorf("read counters and mtu of %s: %w", req.Name(), err)
	}
	return d, nil
}

func dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate tap descriptor: %w", err)
	}
	return n, nil
}

func closing(fd int, err error) error { return errors.Join(err, unix.Close(fd)) }

// closeOnce closes *fd unless it is closed.
func closeOnce(fd *int) error {
	if *fd < 0 {
		return nil
	}
	n := *fd
	*fd = -1
	return unix.Close(n)
}
