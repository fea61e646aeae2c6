package xdp

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES: what the program says of a frame is done with it.
const liveFrames = 2

// sendMarkers sends a marker to each port through each worker's queue, and the ring behind it. It returns their
// number, which is higher than those of earlier ones, and how many they are to each port.
func (s *shared) sendMarkers(ports [2]uint32) (number uint32, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marker++
	cpus := uint32(s.workers[len(s.workers)-1] + 1)
	order := sharedEpairOrder{Number: s.marker, Cpus: cpus, Ports: ports}
	if err := s.o.EpairNow.Set(order); err != nil {
		return 0, 0, fmt.Errorf("send markers: %w", err)
	}
	_, err = s.o.EpairSendMarker.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 2 * cpus, Flags: liveFrames})
	if err != nil {
		return 0, 0, fmt.Errorf("send markers: %w", kern.Explain(err))
	}
	return s.marker, len(s.workers), nil
}

// cpus are those that have workers.
func (s *shared) cpus() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers
}

// drain returns when all frames are in the stack that came in before it was called: markers
// follow them through all queues and rings. Those that get lost are sent again.
func (x *crossing) drain() error {
	if err := x.shared.wait(); err != nil {
		return err
	}
	downs, began, err := x.before()
	if err != nil {
		return err
	}
	sent := 0
	defer func() { x.noteLostMarkers(began, sent) }()
	first := uint32(0)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		number, n, err := x.shared.sendMarkers(x.ports)
		if err != nil {
			return err
		}
		sent += n
		if first == 0 {
			first = number
		}
		if done, err := x.awaitMarkers(first, downs); err != nil {
			return err
		} else if done {
			return x.shared.wait() // for the polls in which they came out
		}
	}
	return fmt.Errorf("markers don't come out of %s (is the pair overloaded?)", x.name)
}

// before reads what drain compares with: frames lost before ends that are down, and markers that came out.
func (x *crossing) before() (downs [2]uint64, marked [2]uint32, err error) {
	for dir := range downs {
		if downs[dir], err = x.down(dir); err != nil {
			return downs, marked, err
		}
	}
	marked, err = x.marked()
	return downs, marked, err
}

// down is how many frames of a direction were lost because the far end is down.
func (x *crossing) down(dir int) (uint64, error) {
	l, err := x.shared.lost(x.ends[1-dir].id)
	return l.Down, err
}

// marked is how many markers have come out, by direction.
func (x *crossing) marked() (n [2]uint32, err error) {
	if err := x.coll.Variables["epair_marked"].Get(&n); err != nil {
		return n, fmt.Errorf("read markers: %w", err)
	}
	return n, nil
}

// noteLostMarkers keeps them out of the ledger. Where the program drops them on the way into the device, its
// tracepoint takes every one for a loss.
func (x *crossing) noteLostMarkers(began [2]uint32, sent int) {
	now, err := x.marked()
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir := range 2 {
		out := now[dir] - began[dir]
		if !x.ends[1-dir].inner {
			out = 0
		}
		x.lostMarkers[dir] += uint64(sent) - uint64(out)
	}
}

// awaitMarkers waits a while for markers of any round from the first on, in both directions.
func (x *crossing) awaitMarkers(first uint32, downs [2]uint64) (done bool, err error) {
	const while = 20 * time.Millisecond
	for deadline := time.Now().Add(while); ; time.Sleep(100 * time.Microsecond) {
		var marks [2][maxCPUs]uint32
		if err := x.coll.Variables["epair_marks"].Get(&marks); err != nil {
			return false, fmt.Errorf("read markers: %w", err)
		}
		missing := func(dir int) bool {
			return slices.ContainsFunc(x.shared.cpus(), func(cpu int) bool { return marks[dir][cpu] < first })
		}
		late := time.Now().After(deadline)
		done = true
		for dir := range 2 {
			if !missing(dir) {
				continue
			}
			down, err := x.down(dir)
			if err != nil {
				return false, err
			}
			done = done && late && down > downs[dir] // then there is nothing before it
		}
		if done || late {
			return done, nil
		}
	}
}

// maxCPUs is EPAIR_MAX_CPUS.
const maxCPUs = 256
