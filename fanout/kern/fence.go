package kern

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
)

// Names of fence.h's maps and variable.
const (
	fenceMap     = "epair_fence"
	fenceInMap   = "epair_fence_in"
	fenceOutMap  = "epair_fence_out"
	fenceLayout  = "epair_fence_layout"
	maxFenceCPUs = 256
	bucketWords  = 4 // of struct epair_bucket
	slotShift    = 48
	markBits     = 4
)

// Local is the slot of frames that stay on the CPU that takes them in; others are CPU number + 1.
const Local = 0

// layout is struct epair_fence_layout.
type layout struct {
	Buckets, CPUs, Stride                 uint32
	BucketBits, CPUBits, SeqBits, TopBits uint32
	Top                                   [maxFenceCPUs]uint32
}

// Fence is the fence of one pair, both directions: bpf/fence.h has its rules.
//
// Concurrency contract: all methods may be called from any goroutine.
type Fence struct {
	keep   *Keep
	layout layout

	mu   sync.Mutex
	maps map[string]*ebpf.Map
	// What programs write: struct epair_bucket by direction and bucket; numbers by CPU, direction and bucket;
	// numbers by direction, bucket and CPU. nil when closed.
	word, in, out *words
}

// NewFence makes the maps for a table of that many buckets. rps is the CPUs of the RPS mask behind which
// skbs are marked, in the order in which the kernel has them (ascending); nil where XDP does the work. It needs CAP_BPF.
func NewFence(buckets int, rps []int) (*Fence, error) { return (*Keep)(nil).NewFence(buckets, rps) }

// NewFence is the function of that name, for a crossing that is kept.
func (k *Keep) NewFence(buckets int, rps []int) (*Fence, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("make fence: %w", err)
	}
	f := &Fence{keep: k, maps: map[string]*ebpf.Map{}}
	if f.layout, err = newLayout(buckets, cpus, rps); err != nil {
		return nil, fmt.Errorf("make fence: %w", err)
	}
	if err := f.create(); err != nil {
		return nil, errors.Join(fmt.Errorf("make fence: %w", Explain(err)), f.Close())
	}
	return f, nil
}

// newLayout distributes the bits of an skb's mark. top[cpu] is the smallest number of TopBits bits
// that, multiplied by the length of the mask and divided by its own range, is the CPU's place in it (get_rps_cpu,
// net/core/dev.c); with twice as many numbers as CPUs it stays in that place whatever bits follow.
func newLayout(buckets, cpus int, rps []int) (layout, error) {
	if cpus > maxFenceCPUs {
		return layout{}, fmt.Errorf("%w: %d possible CPUs, more than %d (use datapath user)", ErrRefused, cpus, maxFenceCPUs)
	}
	l := layout{
		Buckets: uint32(buckets), CPUs: uint32(cpus), Stride: uint32(cpus+7) &^ 7,
		BucketBits: log2(buckets), CPUBits: log2(cpus),
	}
	rest := slotShift - markBits - l.BucketBits - l.CPUBits
	l.SeqBits = min(32, rest-1-log2(len(rps)))
	l.TopBits = rest - l.SeqBits
	for place, cpu := range rps {
		if cpu < 0 || cpu >= cpus {
			return layout{}, fmt.Errorf("cpu %d of the RPS mask isn't possible", cpu)
		}
		l.Top[cpu] = uint32((place<<l.TopBits + len(rps) - 1) / len(rps))
	}
	return l, nil
}

// log2 rounds up; 0 and 1 need no bit.
func log2(n int) uint32 { return uint32(bits.Len(uint(max(n, 1) - 1))) }

func (f *Fence) create() (err error) {
	n := 2 * f.layout.Buckets
	if f.word, err = f.add(fenceMap, 8*bucketWords, n); err != nil {
		return err
	}
	if f.in, err = f.add(fenceInMap, 8, n*f.layout.CPUs); err != nil {
		return err
	}
	f.out, err = f.add(fenceOutMap, 8, n*f.layout.Stride)
	return err
}

func (f *Fence) add(name string, size, entries uint32) (*words, error) {
	m, err := f.keep.NewMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.Array, Flags: unix.BPF_F_MMAPABLE, KeySize: 4, ValueSize: size, MaxEntries: entries,
	})
	if err != nil {
		return nil, err
	}
	f.maps[name] = m
	return mapWords(m.FD(), int(size*entries)/8)
}

// Prepare makes a collection that includes fence.h fit for this fence; it is then to be loaded with Maps.
func (f *Fence) Prepare(spec *ebpf.CollectionSpec) error {
	n := 2 * f.layout.Buckets
	for name, entries := range map[string]uint32{fenceMap: n, fenceInMap: n * f.layout.CPUs, fenceOutMap: n * f.layout.Stride} {
		m := spec.Maps[name]
		if m == nil {
			return fmt.Errorf("prepare fence: no map %s", name)
		}
		m.MaxEntries = entries
	}
	v := spec.Variables[fenceLayout]
	if v == nil {
		return fmt.Errorf("prepare fence: no variable %s", fenceLayout)
	}
	if err := v.Set(f.layout); err != nil {
		return fmt.Errorf("prepare fence: %w", err)
	}
	return nil
}

// Maps is for ebpf.CollectionOptions.MapReplacements. borrowed: valid until Close.
func (f *Fence) Maps() map[string]*ebpf.Map { return f.maps }

// InFlight is how many frames of a bucket and CPU may be on their way before an skb's mark can't tell
// which one comes out: the backlog of a CPU must be shorter.
func (f *Fence) InFlight() int { return 1 << (f.layout.SeqBits - 2) }

// Moving returns how many buckets of both directions have frames in flight to another slot than they should
// have: the one that p's table names, or Local.
func (f *Fence) Moving(p *Policy, local bool) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		return 0, fmt.Errorf("read fence: %w", os.ErrClosed)
	}
	n := 0
	for b := range int(f.layout.Buckets) {
		want := uint64(Local)
		if !local {
			want = uint64(p.slot(b))
		}
		for _, key := range []int{b, b + int(f.layout.Buckets)} {
			if f.word.at(key*bucketWords).Load()>>slotShift != want && !f.drained(key) {
				n++
			}
		}
	}
	return n, nil
}

// drained is fence_drained.
func (f *Fence) drained(key int) bool {
	for cpu := range int(f.layout.CPUs) {
		out := f.out.at(key*int(f.layout.Stride) + cpu).Load() // first: it follows in
		if f.in.at(cpu*2*int(f.layout.Buckets)+key).Load() != out {
			return false
		}
	}
	return true
}

// Settle calls wait, and then takes for lost what was counted before and hasn't come out. wait must return only
// when no frame is in flight that was on its way when it was called. A bucket whose last frame was lost and
// which is silent since then is otherwise waited for.
func (f *Fence) Settle(wait func() error) error {
	before, err := f.numbers()
	if err != nil {
		return err
	}
	if err := wait(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		return fmt.Errorf("settle fence: %w", os.ErrClosed)
	}
	for i, n := range before {
		cpu, key := i/(2*int(f.layout.Buckets)), i%(2*int(f.layout.Buckets))
		raise(f.out.at(key*int(f.layout.Stride)+cpu), n)
	}
	return nil
}

// numbers returns the numbers of the last frames counted, by CPU, direction and bucket.
func (f *Fence) numbers() ([]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.in == nil {
		return nil, fmt.Errorf("settle fence: %w", os.ErrClosed)
	}
	all := make([]uint64, 2*f.layout.Buckets*f.layout.CPUs)
	for i := range all {
		all[i] = f.in.at(i).Load()
	}
	return all, nil
}

// raise is fence_raise.
func raise(p *atomic.Uint64, v uint64) {
	for {
		old := p.Load()
		if int64(v-old) <= 0 || p.CompareAndSwap(old, v) {
			return
		}
	}
}

// Close gives the maps up; programs that are loaded keep them. It is idempotent.
func (f *Fence) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, w := range []*words{f.word, f.in, f.out} {
		if w != nil {
			errs = append(errs, w.unmap())
		}
	}
	f.word, f.in, f.out = nil, nil, nil
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// slot is what a bucket's value in the table is.
func (p *Policy) slot(bucket int) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint32(p.cpus[p.table.Worker(bucket)]) + 1
}

// Buckets is the size of the table, which never changes.
func (p *Policy) Buckets() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Size()
}

// Explain says of a refusal by bpf(2) which capabilities are missing, and keeps only its number: the
// loader's text suspects RLIMIT_MEMLOCK, to which nothing is charged any more (Linux 5.11).
func Explain(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	return caps.Explain(unix.EPERM, caps.BPF, caps.NetAdmin, caps.Perfmon)
}
