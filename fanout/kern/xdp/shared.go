package xdp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/cpus"
)

const (
	maxPorts    = 4096 // two per pair
	queueLength = 4096 // of a worker: more than EPAIR_DEEPEST and what all CPUs may have in their hands
)

// shared is what all crossings of a policy use: workers, the map of devices, and the programs at
// tracepoints.
//
// Concurrency contract: all methods may be called from any goroutine.
type shared struct {
	o     sharedObjects
	sync  *ebpf.Map // see wait
	links []link.Link

	mu      sync.Mutex
	ports   []bool // taken
	workers []int  // CPUs that have one; nil before they are needed
	marker  uint32 // number of the last round of markers
	counted int    // devices that need to know what is sent to them
	closed  bool
}

// sharedKey is shared's in kern.Policy.Shared.
type sharedKey struct{}

func sharedOf(p *kern.Policy) (*shared, error) {
	c, err := p.Shared(sharedKey{}, func() (io.Closer, error) {
		s := &shared{ports: make([]bool, maxPorts)}
		if err := s.open(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return c.(*shared), nil
}

func (s *shared) open() error {
	if err := hasBTF(); err != nil {
		return err
	}
	spec, err := loadShared()
	if err != nil {
		return fmt.Errorf("read bpf objects: %w", err)
	}
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	spec.Maps["epair_queues"].MaxEntries = uint32(n)
	spec.Maps["epair_cpus"].MaxEntries = uint32(n)
	spec.Maps["epair_polls"].MaxEntries = uint32(n)
	spec.Maps["epair_devs"].MaxEntries = maxPorts
	spec.Maps["epair_gone"].MaxEntries = maxPorts
	spec.Maps["epair_lost"].MaxEntries = maxPorts
	spec.Maps["epair_lost"].Flags = unix.BPF_F_NO_PREALLOC
	if err := spec.LoadAndAssign(&s.o, nil); err != nil {
		return fmt.Errorf("load what crossings share: %w", kern.Explain(err))
	}
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	s.sync, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "epair_sync", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner,
	})
	if err != nil {
		return fmt.Errorf("make map: %w", kern.Explain(err))
	}
	return errors.Join(s.trace(s.o.EpairOnXmit), s.trace(s.o.EpairOnError))
}

// trace attaches a program to its tracepoint.
func (s *shared) trace(p *ebpf.Program) error {
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return fmt.Errorf("attach to tracepoint: %w", kern.Explain(err))
	}
	s.links = append(s.links, l)
	return nil
}

// wait returns when every program that ran, and the NAPI poll that it ran in, has ended: what they
// sent is in rings and queues. The kernel does so, by an RCU grace period, at each change of a map of
// maps (maybe_wait_bpf_programs in kernel/bpf/syscall.c); a poll has bottom halves off.
func (s *shared) wait() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = errors.Join(s.sync.Put(uint32(0), m), m.Close())
	}
	if err != nil {
		return fmt.Errorf("wait for programs: %w", err)
	}
	return nil
}

// maps are those that the programs of a pair use too.
func (s *shared) maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"epair_queues": s.o.EpairQueues, "epair_lanes": s.o.EpairLanes, "epair_devs": s.o.EpairDevs, "epair_cpus": s.o.EpairCpus, "epair_polls": s.o.EpairPolls,
	}
}

// takePorts reserves one index in the device map for each direction.
func (s *shared) takePorts() (p [2]uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir := range p {
		i := slices.Index(s.ports, false)
		if i < 0 {
			return p, fmt.Errorf("%w: there are %d pairs with datapath xdp already (use another one)", kern.ErrRefused, maxPorts/2)
		}
		s.ports[i] = true
		p[dir] = uint32(i)
	}
	return p, nil
}

// givePorts takes the devices out of the map, and gives both ports back. Some may not be used any more: those for
// which a worker may still have frames.
func (s *shared) givePorts(p [2]uint32, again bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, i := range p {
		s.ports[i] = !again
		if !s.closed {
			if err := s.o.EpairDevs.Delete(i); err != nil {
				errs = append(errs, fmt.Errorf("take device from map: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// cpuValue is struct bpf_cpumap_val.
type cpuValue struct {
	Length, Program uint32
}

// startWorkers sees to it that every CPU has a worker, a thread of the kernel's: there is one per CPU, for all
// crossings.
func (s *shared) startWorkers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("start workers: %w", os.ErrClosed)
	}
	if s.workers != nil {
		return nil
	}
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return err
	}
	online, err := cpus.Parse(string(b))
	if err != nil {
		return fmt.Errorf("start workers: %w", err)
	}
	if err := s.trace(s.o.EpairOnPoll); err != nil { // only what workers do needs it
		return err
	}
	v := cpuValue{queueLength, uint32(s.o.EpairWork.FD())}
	for _, c := range online {
		if err := s.o.EpairCpus.Put(uint32(c), v); err != nil {
			return fmt.Errorf("start worker of CPU %d: %w", c, kern.Explain(err))
		}
	}
	s.workers = online
	return nil
}

// Close gives all of it up. Crossings that are still open go on, but their losses aren't counted any more.
func (s *shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, s.sync.Close(), s.o.Close())...) // nil ones close well
}
