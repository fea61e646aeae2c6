// Package kern carries the frames of a pair in the kernel, by the same policy as
// the workers of package fanout: the programs of package bpf hash each frame, and the
// table says which CPU handles it.
//
// Words: a crossing is a pair whose frames the kernel carries; a slot is the place of a
// bucket's CPU in it, with slot 0 for the CPU on which a frame arrives (inline).
package kern

import "errors"

// Mode says where the work of a pair runs.
type Mode string

// The modes of a crossing.
const (
	Inline Mode = "inline" // on the CPU that sends or receives the frame
	Pool   Mode = "pool"   // the flow hash picks the CPU
	Poller Mode = "poller" // a pinned thread of the kernel's polls (threaded NAPI)
)

// ErrRefused says that the kernel, or this pair's ends, can't have what was asked for. The
// error that wraps it names the reason and what to do.
var ErrRefused = errors.New("refused")

// Device is a network device. NetNS is borrowed for the duration of a call; what is
// made of it doesn't keep the namespace alive.
type Device struct {
	NetNS   int // descriptor
	Ifindex int // 0: there is none
	Name    string
}

// End is one end of a pair as a crossing sees it.
//
//	        Inner                                Outer
//	direct  the veth side in its namespace       none
//	veth    the side in the end's namespace      the other side, in a private namespace
//	dev     none                                 the interface that exists
type End struct {
	Inner, Outer Device
	Owned        bool // offloads may be changed; they are put back
}

// Config describes a crossing.
type Config struct {
	Name   string // of the pair
	Mode   Mode
	A, B   End
	Policy *Policy
	Keep   *Keep // nil: it ends with the process. With it, a mode that the crossing has already stays
}

// Crossing is a pair whose frames the kernel carries. It is made all or nothing.
//
// Concurrency contract: all methods may be called from any goroutine.
type Crossing interface {
	// SetMode changes the mode while frames pass. It keeps the order of every flow, and returns
	// when no frame is handled in the old mode any more. After an error the old mode holds.
	SetMode(Mode) (Change, error)
	// Moving returns how many buckets have frames in flight to another CPU than the one
	// that the policy's table names. It tells when a change of the table is done.
	Moving() (int, error)
	// Drain returns when every frame that was hashed before it was called is out. Frames pass meanwhile.
	Drain() error
	// Ledgers returns what became of the frames of both directions; after Close, until its programs were off.
	Ledgers() (ab, ba Ledger, err error)
	// Threads returns the kernel threads that serve the pair (mode poller).
	Threads() []Thread
	// Notes says what a user should know: what the mode costs, what was changed on the ends, what
	// the ledger can't see.
	Notes() []string
	// Close takes everything off the devices and puts back what was changed. It is idempotent.
	Close() error
	// Leave gives up what the process has of a crossing with Keep, which goes on: a Close that changes nothing.
	Leave() error
}

// Change says what a change of mode did.
type Change struct {
	Blocked uint64 // frames dropped to keep their flow in order (drop reason fence)
	Micros  int64  // until the last frame of the old mode was delivered
}

// Ledger is what became of a direction's frames: Rx = Tx + Σ Drops + Queued.
type Ledger struct {
	Rx, RxBytes uint64
	Tx, TxBytes uint64
	Queued      uint64
	Drops       map[string]uint64 // by reason; each loss once
	Unsteered   uint64            // of Rx: no program saw the frame, the kernel chose the CPU (mode pool)
	PerCPU      []uint64          // of Tx, by CPU number
}

// Imbalance is 0 for a true ledger.
func (l *Ledger) Imbalance() int64 {
	n := l.Rx - l.Tx - l.Queued
	for _, d := range l.Drops {
		n -= d
	}
	return int64(n)
}

// Thread is a kernel thread that serves a pair.
type Thread struct {
	PID, CPU int
	Name     string
}
