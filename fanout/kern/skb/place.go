package skb

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
)

// place is a device that can be found again, though nothing of its namespace is open: by the handle of its
// namespace's file (Linux 6.18, nsfs_fh_to_dentry in fs/nsfs.c).
type place struct {
	dev      kern.Device
	borrowed bool // dev.NetNS is still the caller's
	handle   unix.FileHandle
	lost     error // why there is no handle
}

// nsfsRoot is FD_NSFS_ROOT of <linux/fcntl.h>.
const nsfsRoot = -10003

func placeOf(d kern.Device) *place {
	p := &place{dev: d, borrowed: true}
	var err error
	p.handle, _, err = unix.NameToHandleAt(d.NetNS, "", unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: this kernel can't reopen a namespace (needs Linux 6.18; create the pair anew in the other mode)", kern.ErrRefused)
	}
	if err != nil {
		p.lost = fmt.Errorf("remember namespace of %s: %w", d.Name, err)
	}
	return p
}

// do runs fn with the device. One that is gone, with its namespace or alone, is fine.
func (p *place) do(fn func(kern.Device) error) error {
	d := p.dev
	if !p.borrowed {
		if p.lost != nil {
			return p.lost
		}
		fd, err := unix.OpenByHandleAt(nsfsRoot, p.handle, unix.O_RDONLY|unix.O_CLOEXEC)
		if errors.Is(err, unix.ESTALE) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reopen namespace of %s: %w", p.dev.Name, err)
		}
		defer unix.Close(fd)
		d.NetNS = fd
	}
	if err := fn(d); err != nil && !gone(err) {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	return nil
}
