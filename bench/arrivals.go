package bench

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/internal/netns"
)

// arrivals counts the datagrams to one port that reach an interface, at tcx ingress, behind the programs that are there.
type arrivals struct {
	count *ebpf.Map
	prog  *ebpf.Program
	hook  link.Link
}

// tcxNext is what the program returns: the next one's turn.
const tcxNext = -1

// countArrivals begins to count.
func countArrivals(ns, ifindex int, port uint16) (c *arrivals, err error) {
	c = &arrivals{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("count arrivals at interface %d: %w", ifindex, err), c.close())
		}
	}()
	if c.count, err = ebpf.NewMap(&ebpf.MapSpec{Name: "arrivals", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return c, err
	}
	if c.prog, err = ebpf.NewProgram(arrivalsProgram(c.count, port)); err != nil {
		return c, err
	}
	return c, netns.Do(ns, func() (err error) {
		c.hook, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: c.prog, Attach: ebpf.AttachTCXIngress})
		return err
	})
}

// arrivalsProgram takes UDP over IPv4 without options, from a copy of the header: heads need not be in one piece.
func arrivalsProgram(count *ebpf.Map, port uint16) *ebpf.ProgramSpec {
	const copied = -48 // where on the stack; the key is below
	word := func(b ...byte) int32 { return int32(binary.NativeEndian.Uint16(b)) }
	return &ebpf.ProgramSpec{
		Name: "arrivals", Type: ebpf.SchedCLS, License: "BSD",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, 0),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, copied),
			asm.Mov.Imm(asm.R4, 38),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, "next"),
			asm.LoadMem(asm.R1, asm.RFP, copied+12, asm.Half), asm.JNE.Imm(asm.R1, word(8, 0), "next"),
			asm.LoadMem(asm.R1, asm.RFP, copied+23, asm.Byte), asm.JNE.Imm(asm.R1, 17, "next"),
			asm.LoadMem(asm.R1, asm.RFP, copied+36, asm.Half), asm.JNE.Imm(asm.R1, word(byte(port>>8), byte(port)), "next"),
			asm.StoreImm(asm.RFP, copied-8, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, count.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, copied-8),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "next"),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, tcxNext).WithSymbol("next"), asm.Return(),
		},
	}
}

// read returns how many have come.
func (c *arrivals) read() (sum uint64, err error) {
	var cpus []uint64
	if err := c.count.Lookup(uint32(0), &cpus); err != nil {
		return 0, fmt.Errorf("read arrivals: %w", err)
	}
	for _, n := range cpus {
		sum += n
	}
	return sum, nil
}

func (c *arrivals) close() error {
	var errs []error
	if c.hook != nil {
		errs = append(errs, c.hook.Close())
	}
	if c.prog != nil {
		errs = append(errs, c.prog.Close())
	}
	if c.count != nil {
		errs = append(errs, c.count.Close())
	}
	return errors.Join(errs...)
}
