package load

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// testRun is the part of union bpf_attr that BPF_PROG_TEST_RUN reads (linux/bpf.h).
type testRun struct {
	progFD, retval    uint32
	sizeIn, sizeOut   uint32
	dataIn, dataOut   uint64
	repeat, duration  uint32
	ctxIn, ctxOutSize uint32
	ctxInPtr, ctxOut  uint64
	flags, cpu, batch uint32
	_                 uint32
}

// liveFrames runs a program on frames made from input, repeat times, batch frames between two looks at the
// scheduler, and does with them what it says. It blocks, and ends early with EINTR
// when the thread gets a signal.
//
// The library's own call starts again then, which would make a run endless.
func liveFrames(prog int, input []byte, repeat, batch uint32) error {
	attr := testRun{
		progFD: uint32(prog), sizeIn: uint32(len(input)), repeat: repeat, batch: batch, flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		// Valid: KeepAlive below holds input, and heap objects don't move.
		dataIn: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(input)))),
	}
	// Valid: attr outlives the call, and the kernel reads and writes no more than its size.
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(input)
	if errno != 0 {
		return errno
	}
	return nil
}
