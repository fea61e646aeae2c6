package bpf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/rss"
)

// needBPF skips a test where BPF isn't allowed, and fails it where everything is required.
func needBPF(t testing.TB) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		m.Close()
	}
	switch {
	case err == nil && os.Geteuid() == 0:
	case os.Getenv("EPAIR_REQUIRE") == "1":
		t.Fatalf("needs root and bpf: %v", err)
	default:
		t.Skipf("needs root and bpf: %v", err)
	}
}

func mustHasher(t testing.TB, cfg rss.Config) *rss.Hasher {
	t.Helper()
	h, err := rss.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustTable(t testing.TB, spec string, size, workers int) *rss.Table {
	t.Helper()
	table, err := rss.ParseTable(spec, size, workers)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func mustRSS(t testing.TB, h *rss.Hasher, table *rss.Table) *RSS {
	t.Helper()
	needBPF(t)
	r, err := NewRSS(h, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// mustCheck loads the test programs on r's maps.
func mustCheck(t testing.TB, r *RSS) *checkPrograms {
	t.Helper()
	var p checkPrograms
	err := loadCheckObjects(&p, &ebpf.CollectionOptions{MapReplacements: r.Maps(nil)})
	if ve := (*ebpf.VerifierError)(nil); errors.As(err, &ve) {
		t.Fatalf("%+v", ve)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &p
}

// class is a program's answer.
type class struct{ Hash, Bucket, Value uint32 }

const classLen = 12

// xdpRun runs an XDP test program on a frame of at least 14 bytes; cut is for check_cut.
type xdpRun struct {
	prog    *ebpf.Program
	in, out []byte
	ctx     xdpMD
	opts    ebpf.RunOptions
}

type xdpMD struct{ Data, DataEnd, DataMeta, Ifindex, RxQueue, EgressIfindex uint32 }

func newXDPRun(prog *ebpf.Program) *xdpRun {
	return &xdpRun{prog: prog, in: make([]byte, classLen, 4096), out: make([]byte, 4096), ctx: xdpMD{Data: classLen}}
}

func (x *xdpRun) run(frame []byte, cut int) (class, uint32, error) {
	x.in = append(x.in[:classLen], frame...)
	binary.LittleEndian.PutUint32(x.in, uint32(cut))
	x.ctx.DataEnd = uint32(len(x.in))
	x.opts = ebpf.RunOptions{Data: x.in, DataOut: x.out, Context: &x.ctx}
	ret, err := x.prog.Run(&x.opts)
	o := x.opts.DataOut
	return class{binary.LittleEndian.Uint32(o), binary.LittleEndian.Uint32(o[4:]), binary.LittleEndian.Uint32(o[8:])}, ret, err
}

func dump(frame []byte) string { return hex.EncodeToString(frame) }

const xdpPass = 2

var _ = unix.EPERM
