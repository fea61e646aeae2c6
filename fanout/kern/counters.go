package kern

import (
	"fmt"

	"github.com/cilium/ebpf"
)

const countersMap = "epair_counters"

// dropNames is enum epair_drop.
var dropNames = [...]string{"fence", "shed", "redirect", "peer_down", "classify"}

// counters is struct epair_counters.
type counters struct {
	Rx, RxBytes              uint64
	Tx, TxBytes              uint64
	Unsteered, UnsteeredByte uint64
	Peer, Redirect           uint64
	Drops                    [len(dropNames)]uint64
}

// Counters is what the programs of one pair count, both directions (bpf/counters.h).
type Counters struct{ m *ebpf.Map }

// Counts is one direction's counters, summed over CPUs.
type Counts struct {
	Rx, RxBytes               uint64
	Tx, TxBytes               uint64
	Unsteered, UnsteeredBytes uint64            // of Tx and TxBytes
	Peer, Redirect            uint64            // handed over to the far end's device
	Drops                     map[string]uint64 // only those that happened
	PerCPU                    []uint64          // of Tx
}

// NewCounters makes the map. It needs CAP_BPF.
func NewCounters() (*Counters, error) { return (*Keep)(nil).NewCounters() }

// NewCounters is the function of that name, for a crossing that is kept.
func (k *Keep) NewCounters() (*Counters, error) {
	m, err := k.NewMap(&ebpf.MapSpec{
		Name: countersMap, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: uint32(8 * (8 + len(dropNames))), MaxEntries: 2,
	})
	if err != nil {
		return nil, fmt.Errorf("make counters: %w", Explain(err))
	}
	return &Counters{m}, nil
}

// Maps is for ebpf.CollectionOptions.MapReplacements. borrowed: valid until Close.
func (c *Counters) Maps() map[string]*ebpf.Map { return map[string]*ebpf.Map{countersMap: c.m} }

// Read returns the counters of direction 0 (a to b) or 1. Programs run meanwhile.
func (c *Counters) Read(dir int) (Counts, error) {
	var all []counters
	if err := c.m.Lookup(uint32(dir), &all); err != nil {
		return Counts{}, fmt.Errorf("read counters: %w", err)
	}
	s := Counts{Drops: map[string]uint64{}, PerCPU: make([]uint64, len(all))}
	for cpu := range all {
		s.add(&all[cpu])
		s.PerCPU[cpu] = all[cpu].Tx
	}
	return s, nil
}

func (s *Counts) add(c *counters) {
	s.Rx, s.RxBytes = s.Rx+c.Rx, s.RxBytes+c.RxBytes
	s.Tx, s.TxBytes = s.Tx+c.Tx, s.TxBytes+c.TxBytes
	s.Unsteered, s.UnsteeredBytes = s.Unsteered+c.Unsteered, s.UnsteeredBytes+c.UnsteeredByte
	s.Peer, s.Redirect = s.Peer+c.Peer, s.Redirect+c.Redirect
	for i, n := range c.Drops {
		if n != 0 {
			s.Drops[dropNames[i]] += n
		}
	}
}

// Close gives the map up; programs that are loaded keep it. It is idempotent.
func (c *Counters) Close() error { return c.m.Close() }
