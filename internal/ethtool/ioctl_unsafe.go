package ethtool

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifreq is struct ifreq with ifr_data, padded to the union's size.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// do hands a command's structure to the kernel, which may change it. cmd must be
// as long as its fields say that it is: the kernel trusts them.
func (s *socket) do(cmd []byte) error {
	// The kernel keeps no pointer to cmd or r beyond the call. cmd is pinned, since
	// only r refers to it, and r goes through a uintptr.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&cmd[0])
	r := &ifreq{name: s.name, data: unsafe.Pointer(&cmd[0])}
	// The conversion of r stands in the call itself (unsafe.Pointer, rule 4), so r is live during it.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(r)))
	runtime.KeepAlive(cmd)
	if errno != 0 {
		return errno
	}
	return nil
}
