package xdp

import (
	"fmt"

	"github.com/epair-net/epair/fanout/kern"
)

const (
	ringSize = 256     // of a veth (VETH_RING_SIZE)
	bulk     = 16 + 64 // frames in a CPU's hands: those of a device map's bulk, and those of a NAPI poll
	deepest  = 3584    // EPAIR_DEEPEST
)

// Ledgers reads both directions. While frames pass, Queued is what is on its way, up to what
// queues and rings have room for.
func (x *crossing) Ledgers() (ab, ba kern.Ledger, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return x.last[0], x.last[1], nil
	}
	if ab, err = x.ledger(0); err == nil {
		ba, err = x.ledger(1)
	}
	if err != nil {
		return ab, ba, fmt.Errorf("read ledger of %s: %w", x.name, err)
	}
	return ab, ba, nil
}

// ledger reads a direction until what is missing can be on its way: counters are read one after
// the other, and frames pass meanwhile.
func (x *crossing) ledger(dir int) (l kern.Ledger, err error) {
	const tries = 8
	for range tries {
		if l, err = x.read(dir); err != nil {
			return l, err
		}
		if missing := l.Imbalance(); missing >= 0 && missing <= x.room(dir) {
			l.Queued = uint64(missing)
			break
		}
	}
	return l, nil
}

// read reads a direction once: first what happened to frames, then how many there were.
func (x *crossing) read(dir int) (l kern.Ledger, err error) {
	from, to := x.ends[dir], x.ends[1-dir]
	in, _, err := x.shared.lost(from.id)
	if err != nil {
		return l, err
	}
	out, sent, err := x.shared.lost(to.id)
	if err != nil {
		return l, err
	}
	gone, err := x.shared.gone(x.ports[dir])
	if err != nil {
		return l, err
	}
	c, err := x.counts.Read(dir)
	if err != nil {
		return l, err
	}
	after, err := x.counts.Read(dir)
	if err != nil {
		return l, err
	}
	l = kern.Ledger{Rx: after.Rx, RxBytes: after.RxBytes, Tx: c.Tx, TxBytes: c.TxBytes, Drops: c.Drops, PerCPU: c.PerCPU}
	markers, err := x.lostMarkers(dir) // which are no frames
	if err != nil {
		return l, err
	}
	ring := min(out.Ring, markers)
	out.Ring -= ring
	out.Down -= min(out.Down, markers-ring)
	if !to.inner {
		l.Tx, l.PerCPU = out.Sent, sent
		l.TxBytes = l.RxBytes
		if out.Sent != after.Rx { // of those that are missing nobody knows the length
			l.TxBytes = uint64(float64(l.RxBytes) / float64(max(after.Rx, 1)) * float64(out.Sent))
		}
	}
	add(l.Drops, "ring_full", out.Ring)
	add(l.Drops, "peer_down", out.Down+in.Dead+gone)
	add(l.Drops, "redirect", in.Redirect)
	return l, nil
}

func add(drops map[string]uint64, reason string, n uint64) {
	if n != 0 {
		drops[reason] += n
	}
}

// room is how many frames of a direction can be on their way.
func (x *crossing) room(dir int) int64 {
	cpus := len(x.shared.cpus())
	n := x.ends[1-dir].rings*ringSize + cpus*bulk
	if x.mode == kern.Pool {
		n += cpus * deepest
	}
	return int64(n)
}

// Notes says what this crossing costs and can't see.
func (x *crossing) Notes() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	notes := []string{
		"checksums, segmentation and VLAN tags are made by the sender, not by the device: TCP is slower than by tc or direct",
		"frames in an end's ring when that end is set down are lost uncounted, and stay among the queued ones",
		"what the ring of an end's own interface has no room for is counted there (tx_dropped), before it is in the ledger",
	}
	for i, e := range x.ends {
		notes = append(notes, e.notes...)
		if e.inner {
			notes = append(notes, fmt.Sprintf("the XDP hook of end %s's interface is taken", side(i)))
			continue
		}
		notes = append(notes, fmt.Sprintf("tx to %s is counted when its driver takes the frame, its bytes by the mean length of what came in; disorder while buckets move is bounded there by a driver's ring, not excluded", e.outer.Name))
	}
	if x.mode == kern.Poller {
		notes = append(notes, "each NAPI of the outer devices has a thread, which shares its CPU with everything else of its priority")
	}
	return notes
}
