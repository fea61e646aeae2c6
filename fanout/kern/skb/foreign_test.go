package skb

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
)

// A program of somebody else stays where it was and sees what it would see without the crossing.
func TestForeignProgram(t *testing.T) {
	needBPF(t)
	for _, path := range []string{"direct", "tc"} {
		t.Run(path, func(t *testing.T) {
			l := devices(t, path, 1500)
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			p := watcher(t, m)
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				err := l.b.ns.Do(func() error {
					k, err := link.AttachTCX(link.TCXOptions{Interface: l.b.index, Program: p, Attach: at})
					if err == nil {
						t.Cleanup(func() { k.Close() })
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			l.cross(kern.Pool)
			tx, rx := l.a.socket(t, 0), l.b.socket(t, unix.ETH_P_ALL)
			for flow := range uint32(10) {
				exchange(t, "to the program", tx, rx, frame(l.b.mac, l.a.mac, flow, 1, 100), unix.PACKET_HOST)
			}
			var seen, marked uint64
			for end := time.Now().Add(5 * time.Second); seen < 10 && time.Now().Before(end); time.Sleep(time.Millisecond) {
				// The socket gets a frame before the program.
				if err := errors.Join(m.Lookup(uint32(0), &seen), m.Lookup(uint32(1), &marked)); err != nil {
					t.Fatal(err)
				}
			}
			if seen != 10 || marked != 0 {
				t.Errorf("the program at the far end saw %d frames, %d with a hash or tc_index", seen, marked)
			}
			if err := l.c.Close(); err != nil {
				t.Fatal(err)
			}
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				if n := attached(t, &l.b, at); n != 1 {
					t.Errorf("%d programs at %v, want the foreign one", n, at)
				}
			}
		})
	}
}

// watcher counts frames in m[0], and in m[1] those that carry somebody's metadata.
func watcher(t *testing.T, m *ebpf.Map) *ebpf.Program {
	t.Helper()
	add := func(key int32, skip string) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -4, int64(key), asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, skip),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		}
	}
	const markOff, priorityOff, tcIndexOff, hashOff = 8, 32, 44, 68 // in struct __sk_buff
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	ins = append(ins, add(0, "out")...)
	ins = append(ins, asm.Mov.Imm(asm.R7, 0))
	for _, off := range []int16{markOff, priorityOff, tcIndexOff, hashOff} {
		ins = append(ins, asm.LoadMem(asm.R8, asm.R6, off, asm.Word), asm.Or.Reg(asm.R7, asm.R8))
	}
	ins = append(ins, asm.JEq.Imm(asm.R7, 0, "out"))
	ins = append(ins, add(1, "out")...)
	ins = append(ins, asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: ins, License: "MIT"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
