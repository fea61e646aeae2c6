package xdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES: what the program says of a frame is done with it.
const liveFrames = 2

// sendMarkers sends a marker to each of one or two ports through each worker's queue, and the ring behind it. It
// returns their number, which is higher than those of earlier ones, and how many they are to each port.
func (s *shared) sendMarkers(ports []uint32) (number uint32, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marker++
	cpus := uint32(s.workers[len(s.workers)-1] + 1)
	order := sharedEpairOrder{Number: s.marker, Cpus: cpus}
	copy(order.Ports[:], ports)
	if err := s.o.EpairNow.Set(order); err != nil {
		return 0, 0, fmt.Errorf("send markers: %w", err)
	}
	_, err = s.o.EpairSendMarker.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: uint32(len(ports)) * cpus, Flags: liveFrames})
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

// tally is what is known of the markers of one drain, by direction.
type tally struct {
	first  uint32 // number of the first ones
	sent   [2]int
	marked [2]uint32 // that had come out before
	lost   [2]uint64 // frames and markers that the kernel had lost before
}

// drain returns when all frames are in the stack that came in before it was called: markers
// follow them through all queues and rings. Those that get lost are sent again. An end that is down has
// nothing before it: its rings are empty then.
func (x *crossing) drain() error {
	if err := x.shared.wait(); err != nil {
		return err
	}
	t := &tally{}
	var err error
	if t.marked, t.lost, err = x.markers(); err != nil {
		return err
	}
	err = x.follow(t)
	if err = errors.Join(err, x.noteLostMarkers(t)); err != nil {
		return err
	}
	return x.shared.wait() // for the polls in which they came out
}

// follow sends markers until they have come out.
func (x *crossing) follow(t *tally) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var ports []uint32
		var dirs []int
		for dir, port := range x.ports {
			if x.ends[1-dir].running() {
				ports, dirs = append(ports, port), append(dirs, dir)
			}
		}
		if len(ports) == 0 {
			return nil
		}
		number, n, err := x.shared.sendMarkers(ports)
		if err != nil {
			return err
		}
		if t.first == 0 {
			t.first = number
		}
		for _, dir := range dirs {
			t.sent[dir] += n
		}
		if done, err := x.awaitMarkers(t.first, dirs); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("markers don't come out of %s (is the pair overloaded?)", x.name)
}

// awaitMarkers waits a while for markers of any round from the first on.
func (x *crossing) awaitMarkers(first uint32, dirs []int) (done bool, err error) {
	const while = 20 * time.Millisecond
	for deadline := time.Now().Add(while); ; time.Sleep(100 * time.Microsecond) {
		var marks [2][maxCPUs]uint32
		if err := x.coll.Variables["epair_marks"].Get(&marks); err != nil {
			return false, fmt.Errorf("read markers: %w", err)
		}
		done := !slices.ContainsFunc(dirs, func(dir int) bool {
			return slices.ContainsFunc(x.shared.cpus(), func(cpu int) bool { return marks[dir][cpu] < first })
		})
		if done || time.Now().After(deadline) {
			return done, nil
		}
	}
}

// markers reads how many markers have come out, and what the kernel has lost before the ends.
func (x *crossing) markers() (marked [2]uint32, lost [2]uint64, err error) {
	if err := x.coll.Variables["epair_marked"].Get(&marked); err != nil {
		return marked, lost, fmt.Errorf("read markers: %w", err)
	}
	for dir := range lost {
		l, _, err := x.shared.lost(x.ends[1-dir].id)
		if err != nil {
			return marked, lost, err
		}
		lost[dir] = l.Ring + l.Down
	}
	return marked, lost, nil
}

// noteLostMarkers keeps markers that the kernel lost out of the ledger. Where our program drops them on the
// way into the device, the tracepoint takes every one for a loss.
func (x *crossing) noteLostMarkers(t *tally) error {
	marked, lost, err := x.markers()
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir := range 2 {
		n := uint64(t.sent[dir])
		if x.ends[1-dir].inner {
			n -= uint64(marked[dir] - t.marked[dir])
		}
		x.lostMarkers[dir] += min(n, lost[dir]-t.lost[dir])
	}
	return nil
}

// maxCPUs is EPAIR_MAX_CPUS.
const maxCPUs = 256
