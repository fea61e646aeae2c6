package bpf

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/epair-net/epair/rss"
)

// The numbers that C and Go share.
func TestConstants(t *testing.T) {
	for _, c := range []struct {
		name      string
		c, goWord int
	}{
		{"window", int(checkEpairBoundsEPAIR_WINDOW), rss.Window},
		{"tags", int(checkEpairBoundsEPAIR_MAX_TAGS), rss.MaxTags},
		{"extension headers", int(checkEpairBoundsEPAIR_MAX_EXTS), rss.MaxExts},
		{"key", int(checkEpairBoundsEPAIR_MAX_KEY_LEN), rss.MaxKeyLen},
		{"table", int(checkEpairBoundsEPAIR_MAX_TABLE_SIZE), rss.MaxTableSize},
		{"raw", int(checkEpairTypeEPAIR_RAW), int(rss.Raw)},
		{"mac", int(checkEpairTypeEPAIR_MAC), int(rss.MAC)},
		{"ip4", int(checkEpairTypeEPAIR_IP4), int(rss.IP4)},
		{"ip6", int(checkEpairTypeEPAIR_IP6), int(rss.IP6)},
		{"tcp4", int(checkEpairTypeEPAIR_TCP4), int(rss.TCP4)},
		{"udp4", int(checkEpairTypeEPAIR_UDP4), int(rss.UDP4)},
		{"sctp4", int(checkEpairTypeEPAIR_SCTP4), int(rss.SCTP4)},
		{"sctp6", int(checkEpairTypeEPAIR_SCTP6), int(rss.SCTP6)},
		{"types", int(checkEpairTypeEPAIR_NUM_TYPES), rss.NumFlowTypes},
		{"s", int(checkEpairFieldsEPAIR_SRC), int(rss.Src)},
		{"d", int(checkEpairFieldsEPAIR_DST), int(rss.Dst)},
		{"f", int(checkEpairFieldsEPAIR_SPORT), int(rss.Sport)},
		{"n", int(checkEpairFieldsEPAIR_DPORT), int(rss.Dport)},
		{"toeplitz", int(checkEpairFuncEPAIR_TOEPLITZ), int(rss.Toeplitz)},
		{"xxhash", int(checkEpairFuncEPAIR_XXHASH), int(rss.XXHash)},
		{"quick none", int(checkEpairQuickEPAIR_QUICK_NONE), int(quickNone)},
		{"quick addresses", int(checkEpairQuickEPAIR_QUICK_ADDRS), int(quickAddrs)},
		{"quick all", int(checkEpairQuickEPAIR_QUICK_ALL), int(quickAll)},
	} {
		if c.c != c.goWord {
			t.Errorf("%s: %d in C, %d in Go", c.name, c.c, c.goWord)
		}
	}
}

// A program that runs while the hash changes gives the old hash or the new one, and the new
// one once SetHasher has returned.
func TestSetHasherWhileProgramsRun(t *testing.T) {
	frame := flowFrame("[2001:db8::1]:40000", "[2001:db8::2]:80", 1)
	table := mustTable(t, "", 0, 4)
	hashers := []*rss.Hasher{mustHasher(t, rss.Config{}), mustHasher(t, rss.Config{Func: "xxhash"}), mustHasher(t, rss.Config{Key: "symmetric"})}
	var hashes []uint32
	for _, h := range hashers {
		hashes = append(hashes, h.Hash(frame))
	}
	r := mustRSS(t, hashers[0], table)
	o := mustCheck(t, r)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- each(stop, newXDPRunner(o.CheckXdp), frame, hashes, class.hash) }()
	x := newXDPRunner(o.CheckXdp)
	for i := range 60 {
		h := i % len(hashers)
		if err := r.SetHasher(hashers[h]); err != nil {
			t.Fatal(err)
		}
		if c, err := x.run(frame); err != nil || c.Hash != hashes[h] {
			t.Errorf("after SetHasher: %v %08x, want %08x", err, c.Hash, hashes[h])
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A program that runs while the table changes gives the old value of a bucket or the new one.
func TestSetTableWhileProgramsRun(t *testing.T) {
	frame := flowFrame("192.0.2.1:40000", "198.51.100.2:80", 0)
	table := mustTable(t, "", 0, 1)
	r := mustRSS(t, mustHasher(t, rss.Config{}), table)
	o := mustCheck(t, r)
	values := []uint32{0, 0x01020304, 0xfffefdfc}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- each(stop, newXDPRunner(o.CheckXdp), frame, values, class.value) }()
	x := newXDPRunner(o.CheckXdp)
	for i := range 20_000 {
		v := values[i%len(values)]
		if err := r.table.Set(table, []uint32{v}); err != nil {
			t.Fatal(err)
		}
		if i%100 != 0 {
			continue
		}
		if c, err := x.run(frame); err != nil || c.Value != v {
			t.Errorf("after Set: %v %x, want %x", err, c.Value, v)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func (c class) hash() uint32  { return c.Hash }
func (c class) value() uint32 { return c.Value }

// each runs a program until stop and checks that its answer is always one of the allowed.
func each(stop <-chan struct{}, x *xdpRunner, frame []byte, allowed []uint32, of func(class) uint32) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		c, err := x.run(frame)
		if err == nil && !slices.Contains(allowed, of(c)) {
			err = errors.New("neither the old nor the new answer")
		}
		if err != nil {
			<-stop
			return err
		}
	}
}

func TestTableSet(t *testing.T) {
	four := mustTable(t, "0,1,2,3", 4, 4)
	r := mustRSS(t, mustHasher(t, rss.Config{}), four)
	if err := r.SetTable(mustTable(t, "", 8, 4)); !errors.Is(err, ErrSize) {
		t.Errorf("other size: %v", err)
	}
	nt, err := NewTable(four)
	if err != nil {
		t.Fatal(err)
	}
	if err := nt.Set(four, []uint32{9, 8, 7}); err == nil {
		t.Error("a worker without a value is accepted")
	}
	if got := valuesOf(t, nt); !slices.Equal(got, []uint32{0, 1, 2, 3}) {
		t.Errorf("a refused Set left %v", got)
	}
	if err := nt.Set(mustTable(t, "3,3,0,1", 4, 4), []uint32{9, 8, 7, 6}); err != nil {
		t.Error(err)
	}
	if got := valuesOf(t, nt); !slices.Equal(got, []uint32{6, 6, 9, 8}) {
		t.Errorf("Set wrote %v", got)
	}
	if err := errors.Join(nt.Close(), nt.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := nt.Set(four, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("set after close: %v", err)
	}
}

// valuesOf reads a table as the kernel has it.
func valuesOf(t *testing.T, table *Table) []uint32 {
	var v steerEpairTable
	if err := table.m.Lookup(uint32(0), &v); err != nil {
		t.Fatal(err)
	}
	return v.Value[:v.Mask+1]
}
