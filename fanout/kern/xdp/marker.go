package xdp

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES: what the program does with a frame is done.
const liveFrames = 2

// sendMarkers sends one marker through each worker's queue, and the ring behind it, to a port. It returns their
// number, which is higher than those of earlier ones, and how many they are.
func (s *shared) sendMarkers(port uint32) (number uint32, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marker++
	for v, value := range map[*ebpf.Variable]uint32{
		s.o.EpairMarker: s.marker, s.o.EpairMarkerPort: port, s.o.EpairMarkerCpu: 0,
	} {
		if err := v.Set(value); err != nil {
			return 0, 0, fmt.Errorf("send markers: %w", err)
		}
	}
	last := s.workers[len(s.workers)-1]
	_, err = s.o.EpairSendMarker.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: uint32(last + 1), Flags: liveFrames})
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

// drainDirection returns when what was in queues and rings is out: a marker follows it through
// each of them. Markers that get lost are sent again. If the far end is down, there is nothing before it.
func (x *crossing) drainDirection(dir int) error {
	to := x.ends[1-dir].id
	start, err := x.shared.lost(to)
	if err != nil {
		return err
	}
	began, err := x.marked(dir)
	if err != nil {
		return err
	}
	var first uint32
	sent := 0
	defer func() {
		now, err := x.marked(dir)
		if !x.ends[1-dir].inner {
			now = began // its program drops a marker, which the tracepoint takes for a loss
		}
		if err == nil {
			x.lostMarkers[dir] += uint64(sent) - uint64(now-began)
		}
	}()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		number, n, err := x.shared.sendMarkers(x.ports[dir])
		if err != nil {
			return err
		}
		sent += n
		if first == 0 {
			first = number
		}
		if done, err := x.awaitMarkers(dir, first, start.Down); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("markers don't come out towards %s (is the pair overloaded?)", x.ends[1-dir].outer.Name)
}

// awaitMarkers waits a while for the markers of any round from the first on. down is how many
// frames were lost before, as the far end was down.
func (x *crossing) awaitMarkers(dir int, first uint32, down uint64) (done bool, err error) {
	const while = 20 * time.Millisecond
	for deadline := time.Now().Add(while); ; time.Sleep(100 * time.Microsecond) {
		var marks [2][256]uint32
		if err := x.coll.Variables["epair_marks"].Get(&marks); err != nil {
			return false, fmt.Errorf("read markers: %w", err)
		}
		done = true
		for _, cpu := range x.shared.cpus() {
			done = done && marks[dir][cpu] >= first
		}
		if done || time.Now().After(deadline) {
			break
		}
	}
	if done {
		return true, nil
	}
	now, err := x.shared.lost(x.ends[1-dir].id)
	return now.Down > down, err
}

// marked is how many markers have come out.
func (x *crossing) marked(dir int) (uint32, error) {
	var n [2]uint32
	if err := x.coll.Variables["epair_marked"].Get(&n); err != nil {
		return 0, fmt.Errorf("read markers: %w", err)
	}
	return n[dir], nil
}
