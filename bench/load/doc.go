// Package load makes frames and sends them into an interface, one generator for each chosen CPU.
//
//	bpf(BPF_PROG_TEST_RUN, live frames), one call a run, on a thread bound to the CPU
//	   └▶ program: is a frame due? whole header and stamp written ─┬▶ Frame: redirect ──▶ interface
//	                                                                └▶ Skb: up to lo ─▶ tcx redirect ─▶ interface
//
// Frames above wire.MaxLive bytes, which such a call can't make, are sent by a packet socket, in the same way otherwise (long.go).
//
// A call costs some 20 ms before its first frame, so the pace is kept in the program, by the
// monotonic clock. Frame number k of a paced run is due at start + k ÷ rate, whatever happened to
// those before; the frame carries that time, so that a stall is seen by every frame it held back
// and not only by the one (coordinated omission).
//
// The kernel recycles the frames' pages with every change that was made to them on their way, so
// each is written anew.
//
// Beside each generator a second thread wakes now and then on the same CPU, for the kernel's sake (thread.go).
//
// Offered frames are those given to the interface. Whether they were delivered only the far end knows
// (package sink).
package load
