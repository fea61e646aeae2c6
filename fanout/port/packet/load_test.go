package packet

import (
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/porttest"
)

// load puts frames on a veth faster than a socket can: an XDP program that the
// kernel runs on frames of its own making, and that redirects them into the inner side.
type load struct {
	v     *porttest.Veth
	prog  *ebpf.Program
	frame []byte
}

func newLoad(tb testing.TB, v *porttest.Veth, size int) *load {
	tb.Helper()
	// A veth takes redirected frames only if the other side has a NAPI, which GRO gives it.
	err := v.OuterNS.Do(func() error { return exec.Command("ethtool", "-K", v.Outer, "gro", "on").Run() })
	if err != nil {
		tb.Skipf("turn gro on: %v (needs ethtool)", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "BSD", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(v.InnerIndex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	}})
	if err != nil {
		tb.Skipf("load an XDP program: %v", err)
	}
	tb.Cleanup(func() { _ = prog.Close() })
	l := &load{v: v, prog: prog, frame: make([]byte, size)}
	copy(l.frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	return l
}

// run sends n frames from CPU 0 and returns how long that took.
func (l *load) run(tb testing.TB, n uint32) (took time.Duration) {
	tb.Helper()
	err := l.v.InnerNS.Do(func() error {
		defer pinTo(tb, 0)()
		start := time.Now()
		_, err := l.prog.Run(&ebpf.RunOptions{Data: l.frame, Repeat: n, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
		took = time.Since(start)
		return err
	})
	if err != nil {
		tb.Fatalf("run the load: %v", err)
	}
	return took
}
