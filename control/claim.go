package control

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// claim lets the stack behind an existing interface see none of its frames: a packet
// socket gets a copy of each, and a tcx program drops the original behind it
// (linux/bpf.h: TCX_DROP). The program goes with the returned link, also in a crash.
func claim(ns, ifindex int, name string) (io.Closer, error) {
	const tcxDrop = 2
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "epair_claim", Type: ebpf.SchedCLS, License: "BSD",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcxDrop), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("claim dev %s: without BPF the host would hear what epair carries: %w",
			name, caps.Explain(err, caps.BPF, caps.NetAdmin))
	}
	defer prog.Close() // the link keeps it
	var l link.Link
	err = netns.Do(ns, func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim dev %s: attach drop program: %w", name, caps.Explain(err, caps.NetAdmin))
	}
	return l, nil
}
