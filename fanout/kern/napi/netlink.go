// Package napi lists the NAPIs of network devices, and lets kernel threads of their own
// run them (threaded NAPI) instead of the soft interrupt of whichever CPU it is.
//
// It speaks the generic netlink family netdev (Documentation/netlink/specs/netdev.yaml). A device
// has NAPIs while it's up; a veth only while it has an XDP program or GRO on. They are others when
// it has been down.
//
// All functions may be called from any goroutine, and block as long as the device's lock is taken.
package napi

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// From linux/netdev.h.
const (
	family = "netdev"

	cmdDevGet  = 1
	cmdNAPIGet = 11
	cmdNAPISet = 14

	attrDevIfindex     = 1
	attrDevXDPFeatures = 3

	attrIfindex  = 1
	attrID       = 2
	attrPID      = 4
	attrThreaded = 8
)

// NAPI is one polling context of a device: of a veth, one receive queue's.
type NAPI struct {
	ID       uint32
	Threaded bool
	PID      int // of its thread; 0 without one
}

// List returns the NAPIs of a device in the order of their IDs, which is that of a veth's queues.
func List(d kern.Device) ([]NAPI, error) {
	var all []NAPI
	err := netns.Do(d.NetNS, func() error {
		msgs, err := request(cmdNAPIGet, unix.NLM_F_DUMP, attr(attrIfindex, uint32(d.Ifindex)))
		if err != nil {
			return err
		}
		for _, m := range msgs {
			n, err := parse(m)
			if err != nil {
				return err
			}
			all = append(all, n)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list napis of %s: %w", d.Name, err)
	}
	slices.SortFunc(all, func(a, b NAPI) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// SetThreaded gives a NAPI of the device a thread, or takes it away. When it returns, the thread
// is there, or no frame is in its hands any more.
func SetThreaded(d kern.Device, id uint32, on bool) error {
	var v uint32
	if on {
		v = 1
	}
	err := netns.Do(d.NetNS, func() error {
		_, err := request(cmdNAPISet, unix.NLM_F_ACK, attr(attrID, id), attr(attrThreaded, v))
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP): // netlink_policy.c: an attribute it doesn't know
		err = fmt.Errorf("%w: this kernel doesn't set napi threads by netlink (%v; Linux 6.17 does)", kern.ErrRefused, err)
	}
	return fmt.Errorf("set thread of napi %d of %s: %w", id, d.Name, caps.Explain(err, caps.NetAdmin))
}

// request sends a command of the family in the calling thread's namespace and returns the
// answers' attributes. flags must let the kernel say when it's done: NLM_F_DUMP or NLM_F_ACK.
func request(cmd uint8, flags int, attrs ...[]byte) ([][]byte, error) {
	f, err := netlink.GenlFamilyGet(family)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: this kernel has no netlink family %s (Linux 6.8 has napis in it)", kern.ErrRefused, family)
	}
	if err != nil {
		return nil, fmt.Errorf("find netlink family %s: %w", family, err)
	}
	b := message(f, cmd, flags, attrs)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send to netlink: %w", err)
	}
	return receive(fd)
}

// message is one request: struct nlmsghdr, struct genlmsghdr, attributes.
func message(f *netlink.GenlFamily, cmd uint8, flags int, attrs [][]byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, 64)
	b = append(b, cmd, byte(f.Version), 0, 0) // the reserved half must be 0: the family checks it
	for _, a := range attrs {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], f.ID)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|uint16(flags))
	return b
}

// receive returns the attributes of all answers, up to the one that says that it was the last. The
// family's answers to a dump don't have NLM_F_MULTI, at whose lack package nl would stop.
func receive(fd int) (answers [][]byte, err error) {
	buf := make([]byte, 32<<10) // no dump has longer pieces (netlink_dump)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("receive from netlink: %w", err)
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, fmt.Errorf("parse answer of netlink: %w", err)
		}
		for _, m := range msgs {
			switch m.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR: // both begin with an errno; 0 acknowledges
				return answers, failure(m.Data)
			}
			if len(m.Data) < nl.SizeofGenlmsg {
				return nil, fmt.Errorf("answer of %d bytes: %w", len(m.Data), unix.EBADMSG)
			}
			answers = append(answers, bytes.Clone(m.Data[nl.SizeofGenlmsg:]))
		}
	}
}

func failure(b []byte) error {
	if len(b) < 4 {
		return nil
	}
	if e := int32(binary.NativeEndian.Uint32(b)); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}

// attr is a struct nlattr with a word.
func attr(typ uint16, v uint32) []byte {
	b := make([]byte, 8)
	binary.NativeEndian.PutUint16(b, uint16(len(b)))
	binary.NativeEndian.PutUint16(b[2:], typ)
	binary.NativeEndian.PutUint32(b[4:], v)
	return b
}

func parse(b []byte) (n NAPI, err error) {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return n, fmt.Errorf("parse napi: %w", err)
	}
	for _, a := range attrs {
		if len(a.Value) < 4 {
			continue
		}
		v := binary.NativeEndian.Uint32(a.Value)
		switch a.Attr.Type {
		case attrID:
			n.ID = v
		case attrPID:
			n.PID = int(v)
		case attrThreaded:
			n.Threaded = v != 0
		}
	}
	return n, nil
}

// TakesXDP says whether the device's driver takes frames that an XDP program redirects to it. A veth
// does while its peer polls: it has GRO on or an XDP program.
func TakesXDP(d kern.Device) (can bool, err error) {
	const ndoXmit = 1 << 2 // NETDEV_XDP_ACT_NDO_XMIT
	err = netns.Do(d.NetNS, func() error {
		msgs, err := request(cmdDevGet, unix.NLM_F_ACK, attr(attrDevIfindex, uint32(d.Ifindex)))
		if err != nil {
			return err
		}
		for _, m := range msgs {
			attrs, err := nl.ParseRouteAttr(m)
			if err != nil {
				return err
			}
			for _, a := range attrs {
				if a.Attr.Type == attrDevXDPFeatures && len(a.Value) == 8 {
					can = binary.NativeEndian.Uint64(a.Value)&ndoXmit != 0
				}
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read XDP features of %s: %w", d.Name, err)
	}
	return can, nil
}
