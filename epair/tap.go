package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// A TAP's queue keeps the namespace alive in which its descriptor was opened (tun_chr_open,
// drivers/net/tun.c), so that is the private one; the device then moves to the end's
// namespace, which its owner can delete whenever he likes. The device isn't persistent: it goes with the last
// descriptor.

const (
	tapFlags  = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	tapTxQLen = 1000 // frames that wait in the queue for the port: the kernel's 500 is 3 ms at 150 kpps

	// What frames may leave to the reader: a virtio_net_hdr carries it.
	tapOffload = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	tapUSO     = unix.TUN_F_USO4 | unix.TUN_F_USO6 // since Linux 6.2

	vnetHdrLen = 10 // struct virtio_net_hdr without num_buffers
)

// createTAP makes the end's TAP, down.
func (e *End) createTAP() error {
	h, err := open(e.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := e.env.step("open tap"); err != nil {
		return err
	}
	temp := e.env.tempName('t')
	if err := e.openTAP(temp); err != nil {
		return err
	}
	if err := e.env.step("move tap"); err != nil {
		return err
	}
	l, err := e.env.out.LinkByName(temp)
	if err != nil {
		return fmt.Errorf("look up tap: %w", err)
	}
	tagged := e.env.out.LinkSetAlias(l, e.tag())
	if err := errors.Join(tagged, e.env.out.LinkSetNsFd(l, e.ns.FD())); err != nil {
		return fmt.Errorf("move it to its namespace: %w", err)
	}
	if l, err = h.LinkByName(temp); err != nil {
		return fmt.Errorf("look up tap: %w", err)
	}
	e.innerIndex, e.portIndex = l.Attrs().Index, l.Attrs().Index
	if err := e.takeName(h); err != nil {
		return err
	}
	if err := e.env.step("set up tap"); err != nil {
		return err
	}
	if e.tapMore != nil {
		if err := dropQdisc(h, l); err != nil {
			return err
		}
	}
	if err := errors.Join(h.LinkSetMTU(l, e.mtu), h.LinkSetHardwareAddr(l, e.mac), h.LinkSetTxQLen(l, tapTxQLen)); err != nil {
		return fmt.Errorf("set mtu, address and queue length: %w", err)
	}
	return nil
}

// openTAP opens the queues of a new TAP in the private namespace: all that it will ever have, as a
// queue can only be added to a device in its opener's namespace.
func (e *End) openTAP(name string) error {
	return e.env.private.Do(func() error {
		flags, more := uint16(tapFlags), 0
		if e.fanned {
			more = e.env.queues - 1
		}
		if more > 0 {
			flags |= unix.IFF_MULTI_QUEUE
		}
		fd, err := e.openQueue(name, flags)
		if err != nil {
			return err
		}
		e.tapFD = fd // from here on Delete closes it
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tapOffload|tapUSO)
		if errors.Is(err, unix.EINVAL) {
			err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tapOffload)
		}
		if err != nil {
			return fmt.Errorf("turn offloads on: %w", err)
		}
		if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetHdrLen); err != nil {
			return fmt.Errorf("set header size: %w", err)
		}
		for range more {
			if err := e.addQueue(name, flags); err != nil {
				return fmt.Errorf("add a queue: %w", err)
			}
		}
		return nil
	})
}

// openQueue opens a queue of the TAP, its first or another one.
func (e *End) openQueue(name string, flags uint16) (int, error) {
	fd, err := unix.Open(e.env.tun, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, tunError(e.env.tun, err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if errors.Is(err, unix.ENOTTY) {
		err = fmt.Errorf("%w: %s is another device (make it anew: mknod %s c 10 200)", err, e.env.tun, e.env.tun)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("create it: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// addQueue opens a further queue and detaches it.
func (e *End) addQueue(name string, flags uint16) error {
	fd, err := e.openQueue(name, flags)
	if err != nil {
		return err
	}
	e.tapMore = append(e.tapMore, fd) // from here on Delete closes it
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_DETACH_QUEUE)
	return unix.IoctlIfreq(fd, unix.TUNSETQUEUE, req)
}

// dropQdisc lets a tap of several queues send past queueing disciplines, as a veth does. A tap never asks its
// stack to wait (tun_net_xmit drops instead), so nothing ever waits in one; but by default
// each of the 256 queues that such a device can have gets one with room for 3 × tapTxQLen frames: 6 MiB a tap.
func dropQdisc(h *netlink.Handle, l netlink.Link) error {
	q := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_ROOT}, QdiscType: "noqueue",
	}
	if err := h.QdiscReplace(q); err != nil {
		return fmt.Errorf("set queueing discipline noqueue: %w", err)
	}
	return nil
}

// TapQueues are a tap's further queues, in mode pool one less than the Env has: detached, so that the
// device has one queue until a port attaches more.
// borrowed: as TapFD.
func (e *End) TapQueues() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.tapMore)
}

// tunError says how to get the clone device.
func tunError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open %s: %w (make it: mknod %s c 10 200, or load the tun module)", path, err, path)
	case errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV):
		return fmt.Errorf("open %s: %w (load the tun module: modprobe tun)", path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// deleteTAP deletes the device, also when ports still have duplicates of its
// queue, and closes the queue.
func (e *End) deleteTAP() error {
	var err error
	if e.innerIndex != 0 {
		if err = e.inside(e.deleteInner); missing(err) {
			err = nil
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fd := range e.tapMore {
		err = errors.Join(err, unix.Close(fd))
	}
	e.tapMore = nil
	if e.tapFD >= 0 {
		err = errors.Join(err, unix.Close(e.tapFD))
		e.tapFD = -1
	}
	return err
}

func (e *End) deleteInner(_ *netns.NS, h *netlink.Handle) error { return delLink(h, e.innerIndex) }
