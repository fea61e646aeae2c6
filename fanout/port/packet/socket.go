package packet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// option is one setsockopt of an int.
type option struct {
	level, name, value int
	what               string
}

// tagLen is the size of a VLAN tag.
const tagLen = 4

// ethAll is ETH_P_ALL in network byte order.
const ethAll = 0x0300

// newSocket makes a packet socket that receives nothing yet, in the namespace of descriptor ns, or
// in the caller's when that is 0. Whatever is done with it later, on any
// thread, concerns that namespace.
func newSocket(ns int, opts ...option) (fd int, err error) {
	open := func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}
	if ns == 0 {
		err = open()
	} else {
		err = netns.Do(ns, open)
	}
	switch {
	case errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("open packet socket: %w (needs CAP_NET_RAW in the user namespace that owns the network namespace)", err)
	case err != nil:
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return -1, errors.Join(fmt.Errorf("set %s of packet socket: %w", o.what, err), unix.Close(fd))
		}
	}
	return fd, nil
}
