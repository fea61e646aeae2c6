package packet

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below allocate nothing, which those of package unix do. The pointers
// they pass are valid because each is converted in the call's own argument list, which keeps what
// it points to alive and in place until the call returns, and the kernel writes at most the
// length that goes with it. RawSyscall is right where the kernel can't block.

// soError returns and clears the socket's error.
func soError(fd int) unix.Errno {
	var v, n int32 = 0, 4
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return unix.Errno(v)
}

// boundIfindex returns the interface that a packet socket is bound to, -1 if that was deleted.
func boundIfindex(fd int) int {
	var a unix.RawSockaddrLinklayer
	n := int32(unsafe.Sizeof(a))
	_, _, e := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd),
		uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&n)))
	if e != 0 {
		return -1
	}
	return int(a.Ifindex)
}

// sendTo sends b, or what is in the ring when b is empty, by the interface of to.
// It may take as long as the frames' whole way through the kernel.
func sendTo(fd int, b []byte, to *unix.RawSockaddrLinklayer) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(to)), unix.SizeofSockaddrLinklayer)
	return e
}
