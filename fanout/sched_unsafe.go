package fanout

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setThreadName names the calling thread; comm ends in a zero byte (PR_SET_NAME, prctl(2)).
func setThreadName(comm []byte) error {
	// comm has at least its zero byte, and stays reachable until the call returns.
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&comm[0])), 0, 0, 0)
}
