package packet

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
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

// newSocket makes a packet socket that receives nothing yet.
func newSocket(opts ...option) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) {
		return -1, fmt.Errorf("open packet socket: %w (needs CAP_NET_RAW in the namespace's owner)", err)
	}
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return -1, errors.Join(fmt.Errorf("set %s of packet socket: %w", o.what, err), unix.Close(fd))
		}
	}
	return fd, nil
}

// inNetNS runs fn in the network namespace of descriptor ns, or in the
// caller's when ns is 0.
func inNetNS(ns int, fn func() error) error {
	if ns == 0 {
		return fn()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}
