package bench

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// batch is how many datagrams one call takes: more don't make a datagram cheaper.
const batch = 32

// mmsghdr is struct mmsghdr (recvmmsg(2)); the compiler pads it as C's does.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// messages are datagrams of one size, for one thread. All are sent from, and read into, the same bytes: nobody looks at
// them.
type messages struct {
	hdrs [batch]mmsghdr
	iov  unix.Iovec
	buf  []byte
}

func newMessages(size int) *messages {
	m := &messages{buf: make([]byte, size)}
	m.iov.Base = unsafe.SliceData(m.buf)
	m.iov.SetLen(size)
	for i := range m.hdrs {
		m.hdrs[i].hdr.Iov = &m.iov
		m.hdrs[i].hdr.SetIovlen(1)
	}
	return m
}

// send passes all to the kernel and returns how many it took.
func (m *messages) send(fd int) (int, error) { return m.call(unix.SYS_SENDMMSG, fd, 0) }

// receive waits for one at least, as long as the socket says, and takes what there is.
func (m *messages) receive(fd int) (int, error) {
	return m.call(unix.SYS_RECVMMSG, fd, unix.MSG_WAITFORONE)
}

func (m *messages) call(trap uintptr, fd, flags int) (int, error) {
	// Valid: m outlives the call, hdrs has batch entries, and what they point to belongs to m, which the heap doesn't move.
	n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&m.hdrs[0])), batch, uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// bytes adds up the first n that were received.
func (m *messages) bytes(n int) (sum uint64) {
	for i := range m.hdrs[:n] {
		sum += uint64(m.hdrs[i].len)
	}
	return sum
}
