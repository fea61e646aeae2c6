package bpf

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// class is a program's answer, as classify.h has it.
type class struct{ Hash, Bucket, Value uint32 }

const (
	classLen = 12
	etherLen = 14 // the shortest frame that the kernel runs a program on
)

func classAt(b []byte) class {
	return class{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])}
}

// runner runs a test program on frames (BPF_PROG_TEST_RUN).
type runner interface {
	run(frame []byte) (class, error)
}

// xdpRunner runs check_xdp or check_cut, which have their answer in metadata.
type xdpRunner struct {
	prog    *ebpf.Program
	in, out []byte
	ctx     xdpMD
}

// xdpMD is struct xdp_md.
type xdpMD struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32 }

func newXDPRunner(prog *ebpf.Program) *xdpRunner {
	return &xdpRunner{prog: prog, in: make([]byte, classLen, 4096), out: make([]byte, 4096), ctx: xdpMD{Data: classLen}}
}

func (x *xdpRunner) run(frame []byte) (class, error) {
	binary.LittleEndian.PutUint32(x.in, uint32(len(frame))) // for check_cut
	x.in = append(x.in[:classLen], frame...)
	for len(x.in) < classLen+etherLen {
		x.in = append(x.in, 0xaa)
	}
	x.ctx.DataEnd = uint32(len(x.in))
	opts := ebpf.RunOptions{Data: x.in, DataOut: x.out, Context: &x.ctx}
	ret, err := x.prog.Run(&opts)
	if err == nil && ret != xdpPass {
		err = fmt.Errorf("returned %d", ret)
	}
	if err != nil {
		return class{}, fmt.Errorf("run on %x: %w", frame, err)
	}
	return classAt(opts.DataOut), nil
}

const xdpPass = 2

// skbTakes says whether the kernel runs skb programs on a frame: it refuses IP
// packets shorter than their header (net/bpf/test_run.c).
func skbTakes(f []byte) bool {
	switch binary.BigEndian.Uint16(f[12:]) {
	case 0x0800:
		return len(f) >= etherLen+20
	case 0x86dd:
		return len(f) >= etherLen+40
	}
	return true
}

// tcRunner runs check_tc, which has its answer in cb.
type tcRunner struct {
	prog *ebpf.Program
	ctx  [192]byte // struct __sk_buff
}

func (x *tcRunner) run(frame []byte) (class, error) {
	const cb = 48
	ret, err := x.prog.Run(&ebpf.RunOptions{Data: frame, ContextOut: x.ctx[:]})
	if err == nil && ret != 0 {
		err = fmt.Errorf("returned %d", ret)
	}
	if err != nil {
		return class{}, fmt.Errorf("run on %x: %w", frame, err)
	}
	return classAt(x.ctx[cb:]), nil
}

// socketRunner runs check_packet, whose answer is the hash, and steer_packet, whose answer is the value.
type socketRunner struct{ hash, value *ebpf.Program }

func (x *socketRunner) run(frame []byte) (c class, err error) {
	if c.Hash, err = x.hash.Run(&ebpf.RunOptions{Data: frame}); err == nil {
		c.Value, err = x.value.Run(&ebpf.RunOptions{Data: frame})
	}
	if err != nil {
		return class{}, fmt.Errorf("run on %x: %w", frame, err)
	}
	return c, nil
}
