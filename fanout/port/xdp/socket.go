package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sendBuffer bounds what the kernel holds of a socket's frames: above what all of a completion ring's
// are, so that the ring is the bound.
const sendBuffer = 8 << 20

// bindPatience is how long a queue may stay busy with sockets that were closed: the kernel lets go of
// it in a work queue (xp_put_pool).
const bindPatience = time.Second

// socket is one AF_XDP socket while it is put together.
type socket struct {
	fd  int
	off unix.XDPMmapOffsets
}

// newSocket makes a socket. It runs in the namespace of the device that it will be bound to.
func newSocket() (s socket, err error) {
	s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return s, fmt.Errorf("open AF_XDP socket: %w (needs CAP_NET_RAW in the namespace's owner)", err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return s, fmt.Errorf("open AF_XDP socket: %w (the kernel was built without CONFIG_XDP_SOCKETS)", err)
	case err != nil:
		return s, fmt.Errorf("open AF_XDP socket: %w", err)
	}
	if s.off, err = ringOffsets(s.fd); err != nil {
		return s, errors.Join(err, unix.Close(s.fd))
	}
	return s, nil
}

func (s *socket) receiveRings(r *rxQueue, n int) (err error) {
	r.fill, err = newRing[uint64](s.fd, unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_PGOFF_FILL_RING, &s.off.Fr, n)
	if err != nil {
		return err
	}
	r.rx, err = newRing[unix.XDPDesc](s.fd, unix.XDP_RX_RING, unix.XDP_PGOFF_RX_RING, &s.off.Rx, n)
	return err
}

func (s *socket) completionRing(n int) (ring[uint64], error) {
	return newRing[uint64](s.fd, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &s.off.Cr, n)
}

func (s *socket) txRing(n int) (ring[unix.XDPDesc], error) {
	return newRing[unix.XDPDesc](s.fd, unix.XDP_TX_RING, unix.XDP_PGOFF_TX_RING, &s.off.Tx, n)
}

// unused gives the socket a ring that bind insists on and nobody uses.
func (s *socket) unused(kind int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, kind, 1); err != nil {
		return fmt.Errorf("make a ring of 1 entry: %w", err)
	}
	return nil
}

// forSending gives the socket what sending needs besides the ring.
func (s *socket) forSending(entries int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer); err != nil {
		return fmt.Errorf("set send buffer: %w (needs CAP_NET_ADMIN in the namespace's owner)", err)
	}
	// Before Linux 6.17 a system call sends 32 frames, and that's it.
	err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, entries)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("set transmit budget: %w", err)
	}
	return nil
}

// bind binds the socket to a queue of a device: with the UMEM if none has it yet, or sharing it
// with socket fd, which has it.
func (s *socket) bind(u *umem, fd, ifindex, queue int) error {
	a := unix.SockaddrXDP{Ifindex: uint32(ifindex), QueueID: uint32(queue)}
	if fd < 0 {
		if err := u.register(s.fd); err != nil {
			return err
		}
		a.Flags = unix.XDP_COPY | unix.XDP_USE_NEED_WAKEUP
	} else {
		a.Flags, a.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(fd) // the first one's flags hold for all
	}
	end := time.Now().Add(bindPatience)
	for pause := time.Millisecond; ; pause *= 2 {
		err := unix.Bind(s.fd, &a)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("bind to queue %d: %w", queue, err)
		case time.Now().After(end):
			return fmt.Errorf("bind to queue %d: another AF_XDP socket has it: %w", queue, err)
		}
		time.Sleep(pause)
	}
}
