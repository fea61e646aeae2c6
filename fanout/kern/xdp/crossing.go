package xdp

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
)

// gate is enum epair_gate: what becomes of a frame that comes in.
type gate uint32

const (
	open gate = iota // it leaves at once
	hash             // it passes the fence, to where its bucket is
)

// crossing is a pair. Direction 0 is from end 0 (a) to end 1 (b).
type crossing struct {
	name   string
	shared *shared
	policy *kern.Policy
	fence  *kern.Fence
	counts *kern.Counters
	coll   *ebpf.Collection
	ports  [2]uint32 // in the device map, by direction
	placed bool      // ports are taken
	opened bool      // all of it is there
	ends   [2]*end

	turn    sync.Mutex // held while the mode changes, and by Close; guards what follows
	spreads bool       // frames pass the fence
	polled  bool       // the outer devices' NAPIs have threads

	mu      sync.Mutex // taken behind turn; what it guards changes only while turn is held too
	mode    kern.Mode
	threads [2]*napi.Threads // of the ends, in mode poller
	markers [2]uint32        // that were sent, by direction
	closed  bool
	last    [2]kern.Ledger // when it was closed
}

// New makes the crossing of a pair. The ends' offloads are as doc.go wants them.
func New(c kern.Config) (kern.Crossing, error) {
	if c.Keep != nil {
		return nil, fmt.Errorf("cross %s by xdp: %w: the workers and loss counters that pairs share end with the process (use direct or tc)", c.Name, kern.ErrRefused)
	}
	x := &crossing{name: c.Name, policy: c.Policy, mode: kern.Inline}
	err := x.open(&c)
	if err == nil && c.Mode != kern.Inline {
		_, err = x.SetMode(c.Mode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cross %s by xdp: %w", c.Name, err), x.Close())
	}
	return x, nil
}

func (x *crossing) open(c *kern.Config) (err error) {
	if x.shared, err = sharedOf(c.Policy); err != nil {
		return err
	}
	ends := [2]*kern.End{&c.A, &c.B}
	for i, e := range ends {
		if x.ends[i], err = newEnd(e); err != nil {
			return err
		}
	}
	if err := x.load(); err != nil {
		return err
	}
	// First what lets frames out: a veth takes frames from XDP only when its peer polls, which an XDP
	// program on it sees to.
	for i, e := range x.ends {
		if err := e.attachOut(x.coll.Programs[outName(i)], ends[i].Inner); err != nil {
			return err
		}
	}
	for dir := range 2 {
		if err := x.connect(dir); err != nil {
			return err
		}
	}
	for i, e := range x.ends {
		if err := e.attachIn(x.coll.Programs[inName(i)]); err != nil {
			return err
		}
	}
	x.opened = true
	return nil
}

// nextName is what the kernel calls the slot behind an out program; see doc.go.
const nextName = "epair_next"

func side(i int) string       { return string(rune('a' + i)) }
func inName(i int) string     { return "epair_in_" + side(i) }
func outName(i int) string    { return "epair_out_" + side(i) }
func egressName(i int) string { return "epair_egress_" + side(i) }

// load loads the pair's programs, on maps of its own and of the policy.
func (x *crossing) load() (err error) {
	spec, err := loadCross()
	if err != nil {
		return fmt.Errorf("read bpf objects: %w", err)
	}
	buckets := x.policy.Buckets()
	if x.fence, err = kern.NewFence(buckets, nil); err != nil {
		return err
	}
	if x.counts, err = kern.NewCounters(); err != nil {
		return err
	}
	if x.ports, err = x.shared.takePorts(); err != nil {
		return err
	}
	x.placed = true
	if err := errors.Join(x.fence.Prepare(spec), spec.Variables["epair_ports"].Set(x.ports)); err != nil {
		return err
	}
	spec.Maps["epair_left"].MaxEntries = spec.Maps["epair_fence_out"].MaxEntries
	for i := range x.ends {
		spec.Maps["epair_next_"+side(i)].Name = nextName
	}
	for i, e := range x.ends {
		unused := egressName(i)
		if !e.inner {
			unused = outName(i)
		}
		delete(spec.Programs, unused)
	}
	replace := map[string]*ebpf.Map{}
	maps.Copy(replace, x.fence.Maps())
	maps.Copy(replace, x.counts.Maps())
	maps.Copy(replace, x.policy.RSS().Maps(x.policy.Slots()))
	maps.Copy(replace, x.shared.maps())
	for name, m := range replace {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	x.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return fmt.Errorf("load programs: %w", kern.Explain(err))
	}
	return nil
}

// set writes one of the programs' variables. They see it at once; see shared.wait.
func (x *crossing) set(name string, v any) error {
	if err := x.coll.Variables[name].Set(v); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

// Threads returns the threads of the outer devices' NAPIs. A device that was down has other NAPIs than
// before: they get threads here. It waits for a change of mode to end.
func (x *crossing) Threads() []kern.Thread {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.isClosed() || !x.polled {
		return nil
	}
	var all []kern.Thread
	for i, t := range x.threads {
		if t == nil {
			continue
		}
		if n, err := napi.Start(x.ends[i].outer, x.cpusFor(i)); err == nil {
			n.Adopt(t)
			t = n
			x.setThreads(i, t)
		}
		all = append(all, t.List()...)
	}
	return all
}

func (x *crossing) isClosed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}

// Moving counts buckets in mode pool; there is nothing to move in others. Buckets that lost their last frame it helps
// on, which may take some 50 ms. It waits for a change of mode to end.
func (x *crossing) Moving() (int, error) {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.isClosed() {
		return 0, fmt.Errorf("read fence of %s: %w", x.name, os.ErrClosed)
	}
	if !x.spreads {
		return 0, nil
	}
	n, err := x.fence.Moving(x.policy, false)
	if err == nil && n > 0 {
		if err = x.fence.Settle(x.drain); err == nil {
			n, err = x.fence.Moving(x.policy, false)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read fence of %s: %w", x.name, err)
	}
	return n, nil
}

// Leave is Close: what pairs share ends with the process.
func (x *crossing) Leave() error { return x.Close() }

// Close takes the programs off the devices, threads first.
func (x *crossing) Close() error {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.isClosed() {
		return nil
	}
	errs := []error{x.stopThreads()}
	if x.spreads { // no frame of ours may be in a worker's queue when another pair gets our ports
		errs = append(errs, x.gatherFrames())
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, e := range x.ends {
		if e != nil {
			errs = append(errs, e.detach())
		}
	}
	if x.opened {
		for dir := range x.last {
			l, err := x.ledger(dir)
			x.last[dir], errs = l, append(errs, err)
		}
	}
	if x.placed {
		errs = append(errs, x.shared.givePorts(x.ports, !x.spreads))
	}
	for _, e := range x.ends {
		if e != nil {
			errs = append(errs, e.close(x.shared))
		}
	}
	if x.coll != nil {
		x.coll.Close()
	}
	if x.fence != nil {
		errs = append(errs, x.fence.Close())
	}
	if x.counts != nil {
		errs = append(errs, x.counts.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close crossing %s: %w", x.name, err)
	}
	return nil
}
