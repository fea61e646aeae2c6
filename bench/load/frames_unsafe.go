package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// longBatch is how many long frames one call sends: copying them is what costs.
const longBatch = 16

// mmsghdr is struct mmsghdr (sendmmsg(2)); the compiler pads it as C's does.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// frames are buffers of one size that one call may send, for one thread.
type frames struct {
	bufs [longBatch][]byte
	hdrs [longBatch]mmsghdr
	iovs [longBatch]unix.Iovec
}

func newFrames(size int) *frames {
	f := &frames{}
	for i := range f.bufs {
		f.bufs[i] = make([]byte, size)
		f.iovs[i].Base = unsafe.SliceData(f.bufs[i])
		f.iovs[i].SetLen(size)
		f.hdrs[i].hdr.Iov = &f.iovs[i]
		f.hdrs[i].hdr.SetIovlen(1)
	}
	return f
}

// send passes those from at to before end to the kernel and returns how many it took.
func (f *frames) send(fd, at, end int) (int, error) {
	// Valid: f outlives the call, hdrs has end entries, and what they point to belongs to f, which the heap doesn't move.
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&f.hdrs[at])), uintptr(end-at), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
