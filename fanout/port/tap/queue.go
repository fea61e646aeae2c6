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

// dropped returns the device's tx_dropped: frames that its stack sent and that found the
// ring of the queue full (tun_net_xmit).
//
// The way there leads from the queue each time: the device may have been renamed or
// moved, and a socket kept in its namespace would keep the namespace alive.
func dropped(fd int) (n uint64, err error) {
	req, err := queueInfo(fd)
	if err != nil {
		return 0, err
	}
	ns, err := unix.IoctlRetInt(fd, unix.TUNGETDEVNETNS)
	if err != nil {
		return 0, fmt.Errorf("find namespace of %s: %w", req.Name(), err)
	}
	defer func() { err = errors.Join(err, unix.Close(ns)) }()
	err = netns.Do(ns, func() error {
		link, err := netlink.LinkByName(req.Name())
		if err != nil {
			return err
		}
		n = link.Attrs().Statistics.TxDropped
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read counters of %s: %w", req.Name(), err)
	}
	return n, nil
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
