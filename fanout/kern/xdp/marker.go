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

// passed says whether the queues of all workers are past the markers of a number.
func (s *shared) passed(number uint32) (bool, error) {
	for _, cpu := range s.cpus() {
		var q sharedEpairQueue
		if err := s.o.EpairQueues.Lookup(uint32(cpu), &q); err != nil {
			return false, fmt.Errorf("read queue of CPU %d: %w", cpu, err)
		}
		if q.Marker < uint64(number) {
			return false, nil
		}
	}
	return true, nil
}

// tally is what is known of the markers of one drain.
type tally struct {
	first  uint32    // number of the first ones
	sent   int       // in each direction
	marked [2]uint32 // had come out before, by direction
	lost   [2]uint64 // frames and markers that the kernel had lost before, by direction
}

// drain returns when all frames are in the stack that came in before it was called: markers
// follow them through all queues and rings. Those that get lost are sent again. The rings of an end that is
// down are empty.
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
		number, n, err := x.shared.sendMarkers(x.ports)
		if err != nil {
			return err
		}
		if t.first == 0 {
			t.first = number
		}
		t.sent += n
		if done, err := x.awaitMarkers(t.first); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("markers don't come out of %s (is the pair overloaded?)", x.name)
}

// awaitMarkers waits a while for markers of any round from the first on.
func (x *crossing) awaitMarkers(first uint32) (done bool, err error) {
	const while = 20 * time.Millisecond
	for deadline := time.Now().Add(while); ; time.Sleep(100 * time.Microsecond) {
		var marks [2][maxCPUs]uint32
		if err := x.coll.Variables["epair_marks"].Get(&marks); err != nil {
			return false, fmt.Errorf("read markers: %w", err)
		}
		done, late := true, time.Now().After(deadline)
		for dir := range marks {
			missing := slices.ContainsFunc(x.shared.cpus(), func(cpu int) bool { return marks[dir][cpu] < first })
			if missing && late && !x.ends[1-dir].running() {
				past, err := x.shared.passed(first)
				if err != nil {
					return false, err
				}
				missing = !past
			}
			done = done && !missing
		}
		if done || late {
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
		n := uint64(t.sent)
		if x.ends[1-dir].inner {
			n -= uint64(marked[dir] - t.marked[dir])
		}
		x.lostMarkers[dir] += min(n, lost[dir]-t.lost[dir])
	}
	return nil
}

// maxCPUs is EPAIR_MAX_CPUS.
const maxCPUs = 256
