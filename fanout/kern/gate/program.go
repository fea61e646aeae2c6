package gate

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Actions of <linux/bpf.h>.
const (
	tcxNext = -1
	tcxDrop = 2
)

// program counts and drops each frame while the first value of shut isn't 0:
//
//	if (!*shut) return TCX_NEXT;
//	count->frames++, count->bytes += skb->len;
//	return TCX_DROP;
//
// Egress programs run with bottom halves off, so that plain additions to a CPU's own counters do.
func program(shut, count *ebpf.Map) *ebpf.ProgramSpec {
	lookup := func(m *ebpf.Map) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
		}
	}
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.StoreImm(asm.RFP, -4, 0, asm.Word)}
	ins = append(ins, lookup(shut)...)
	ins = append(ins,
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "next"),
	)
	ins = append(ins, lookup(count)...)
	ins = append(ins,
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // skb->len
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord), asm.Add.Reg(asm.R1, asm.R2), asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, tcxDrop).WithSymbol("drop"), asm.Return(),
		asm.Mov.Imm(asm.R0, tcxNext).WithSymbol("next"), asm.Return(),
	)
	return &ebpf.ProgramSpec{Name: "epair_gate", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: ins}
}
