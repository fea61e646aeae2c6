package xdp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below allocate nothing. The pointers they pass are valid because each is
// converted in the call's own argument list, which keeps what it points to alive and in place
// until the call returns, and the kernel reads or writes at most the length that goes with it.

// kickTx lets the kernel send what is on the tx ring. It may take as long as the
// frames' whole way through the kernel.
func kickTx(fd int) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// kickRx lets the kernel look at the fill ring. It tells ENETDOWN when the interface
// is down and ENXIO when it is gone, and can't block.
func kickRx(fd int) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// soError returns and clears a socket's error.
func soError(fd int) unix.Errno {
	var v int32
	if e := getsockopt(fd, unix.SOL_SOCKET, unix.SO_ERROR, &v); e != 0 {
		return e
	}
	return unix.Errno(v)
}

// statistics reads what the kernel counted for a socket.
func statistics(fd int) (s unix.XDPStatistics, err error) {
	if e := getsockopt(fd, unix.SOL_XDP, unix.XDP_STATISTICS, &s); e != 0 {
		return s, fmt.Errorf("read statistics: %w", e)
	}
	return s, nil
}

// ringOffsets reads where in their mappings the parts of the rings are.
func ringOffsets(fd int) (o unix.XDPMmapOffsets, err error) {
	if e := getsockopt(fd, unix.SOL_XDP, unix.XDP_MMAP_OFFSETS, &o); e != 0 {
		return o, fmt.Errorf("read ring offsets: %w", e)
	}
	return o, nil
}

// getsockopt reads a socket option of T's size. No option read here can block.
func getsockopt[T any](fd, level, name int, v *T) unix.Errno {
	n := uint32(unsafe.Sizeof(*v))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&n)), 0)
	return e
}

// registerUMEM makes mem the socket's UMEM. mem is not Go memory, and the kernel
// pins its pages, so it may outlive the call.
func registerUMEM(fd int, mem []byte, chunk int) error {
	reg := unix.XDPUmemReg{
		Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))),
		Len:  uint64(len(mem)),
		Size: uint32(chunk),
	}
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if e != 0 {
		return e
	}
	return nil
}

// request is an ioctl's argument: struct ifreq, which has a name and a value, or
// where one is (linux/if.h).
type request struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

// ethtoolRequest is struct ifreq with ifr_data.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ethtoolChannels is struct ethtool_channels, and ethtoolValue is struct ethtool_value (linux/ethtool.h).
type (
	ethtoolChannels struct {
		cmd                                    uint32
		maxRx, maxTx, maxOther, maxCombined    uint32
		rxCount, txCount, other, combinedCount uint32
	}
	ethtoolValue struct{ cmd, data uint32 }
)

// value returns the start of the value as a number of any type that fits it.
func value[T int16 | int32](r *request) T { return *(*T)(unsafe.Pointer(&r.data)) }

// ioctl does an ioctl of an interface.
func ioctl(fd int, what uint, r *request) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(what), uintptr(unsafe.Pointer(r)))
	return e
}

// nameOf looks up the present name of an interface.
func nameOf(fd, ifindex int, r *request) unix.Errno {
	*(*int32)(unsafe.Pointer(&r.data)) = int32(ifindex)
	return ioctl(fd, unix.SIOCGIFNAME, r)
}

// ethtool asks ethtool about the interface that r names. The pointer in the request is valid because its type lets
// the runtime see it and keeps v alive, and the kernel writes no more than the structure that v's command takes.
func ethtool(fd int, r *request, v unsafe.Pointer) unix.Errno {
	req := ethtoolRequest{name: r.name, data: v}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	return e
}

// channels asks for the queues that the interface uses. EOPNOTSUPP: it doesn't tell.
func channels(fd int, r *request) (rx, tx int, e unix.Errno) {
	c := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	e = ethtool(fd, r, unsafe.Pointer(&c))
	return int(c.rxCount + c.combinedCount), int(c.txCount + c.combinedCount), e
}

// carrier tells whether the interface is up and has a carrier, at once. An interface's flags tell it up to a
// second later (linkwatch), so they are asked only where a driver doesn't tell.
func carrier(fd int, r *request) bool {
	v := ethtoolValue{cmd: unix.ETHTOOL_GLINK}
	if ethtool(fd, r, unsafe.Pointer(&v)) == 0 {
		return v.data != 0
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING
	return ioctl(fd, unix.SIOCGIFFLAGS, r) == 0 && value[int16](r)&up == up
}

// yield lets others run on this CPU, for as long as they like.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
