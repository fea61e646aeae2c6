package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// Host is where sockets live: a namespace and one of its addresses, without a zone.
type Host struct {
	NS   int // descriptor of the network namespace
	Addr netip.Addr
	CPUs []int // that the threads using the sockets are bound to; none: any
}

// socket opens one of a type (SOCK_STREAM, SOCK_DGRAM) on a free port of h. Its calls block.
func (h Host) socket(typ int) (fd int, err error) {
	fd = -1
	err = netns.Do(h.NS, func() (err error) {
		family := unix.AF_INET6
		if h.Addr.Unmap().Is4() {
			family = unix.AF_INET
		}
		fd, err = unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(h.Addr, 0))); err != nil {
		return -1, errors.Join(fmt.Errorf("bind to %s: %w", h.Addr, err), unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	if a := ap.Addr().Unmap(); a.Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
}

// work runs fn on a thread of its own, bound to h's CPUs, and returns where its error arrives.
//
// The calls of fn block in the kernel, as any program's do, and don't pass the runtime's poller, which
// costs as much as a small datagram.
func (h Host) work(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if len(h.CPUs) == 0 {
			defer runtime.UnlockOSThread()
		} else if err := bind(h.CPUs); err != nil { // the thread ends with the goroutine
			done <- err
			return
		}
		done <- fn()
	}()
	return done
}

// bind keeps the calling thread to some CPUs.
func bind(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to cpus %v: %w", cpus, err)
	}
	return nil
}

// setTimeout bounds how long a socket's calls block.
func setTimeout(fd int, option int, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &tv)
}

// hangUp ends the blocked calls of connected sockets when ctx ends. The result stops the watch; the sockets may be
// closed behind it.
func hangUp(ctx context.Context, fds ...int) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		for _, fd := range fds {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ENOTCONN: it has ended by itself
		}
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}
