package xdp

import (
	"fmt"
	"os"
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

// nowhere is no port: the worker drops what leaves there.
const nowhere = ^uint32(0)

// drain returns when all frames are in the stack that came in before it was called: markers
// follow them through all queues and rings. Those that get lost are sent again. The rings of an end that is
// down are empty.
func (x *crossing) drain() error {
	if err := x.shared.wait(); err != nil {
		return err
	}
	first := uint32(0)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		number, err := x.follow()
		if err != nil {
			return err
		}
		if first == 0 {
			first = number
		}
		if done, err := x.awaitMarkers(first); err != nil {
			return err
		} else if done {
			return x.shared.wait() // for the polls in which they came out
		}
	}
	return fmt.Errorf("markers don't come out of %s (is the pair overloaded?)", x.name)
}

// Drain implements kern.Crossing.
func (x *crossing) Drain() error {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.isClosed() {
		return fmt.Errorf("drain %s: %w", x.name, os.ErrClosed)
	}
	if !x.spreads {
		return nil
	}
	if err := x.drain(); err != nil {
		return fmt.Errorf("drain %s: %w", x.name, err)
	}
	return nil
}

// follow sends a round of markers to those ends that are up, and returns their number.
func (x *crossing) follow() (uint32, error) {
	ports := x.ports
	for dir := range ports {
		if !x.ends[1-dir].running() {
			ports[dir] = nowhere
		}
	}
	number, n, err := x.shared.sendMarkers(ports)
	if err != nil {
		return 0, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir, port := range ports {
		if port != nowhere {
			x.markers[dir] += uint32(n)
		}
	}
	return number, nil
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

// lostMarkers is how many markers of a direction the kernel counts among what it has lost: those that haven't
// come out. Where our program drops them on the way into the device, that's all of them.
func (x *crossing) lostMarkers(dir int) (uint64, error) {
	if !x.ends[1-dir].inner {
		return uint64(x.markers[dir]), nil
	}
	var out [2]uint32
	if err := x.coll.Variables["epair_marked"].Get(&out); err != nil {
		return 0, fmt.Errorf("read markers: %w", err)
	}
	return uint64(x.markers[dir] - out[dir]), nil
}

// maxCPUs is EPAIR_MAX_CPUS.
const maxCPUs = 256
