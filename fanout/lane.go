package fanout

import (
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// Lane is one direction of a pair; one half of it, if the kernel spreads what its near end receives
// over several (spread.go).
type Lane struct {
	id     uint32 // index in Pool.lanes
	back   bool   // b→a
	half   int    // which of the direction's halves, from 0
	spread port.Spreading
	home   *Steering // by which hash and table the kernel spreads; nil unless that is strict
	rx     port.Rx
	arena  *port.Arena            // rx's handle to the buffers of its reader
	reader atomic.Pointer[worker] // written by the pool, while nobody receives
	epoch  atomic.Uint64          // changes of the reader
	txs    []port.Tx              // by worker; nil where the worker doesn't send for the lane. Halves share them
	cells  []cell                 // by worker; the last is for a poller
	gone   atomic.Bool
	silent atomic.Uint32 // how often the port had frames that its descriptor didn't tell of

	pair string // its name

	// The pool's own.
	from, to port.Opener
	attached bool // between begin and end

	_ [64]byte // others read what is above for each frame they take over

	// The reader's own.
	fence
	sampler
	token  int32
	active bool // in the worker's list: Receive may have more
	probed bool // it is there although its descriptor told nothing
}

// near and far return by which names users know the ends.
func (l *Lane) near() string {
	if l.back {
		return "b"
	}
	return "a"
}

func (l *Lane) far() string {
	if l.back {
		return "a"
	}
	return "b"
}

// Gone tells whether the near interface was deleted.
func (l *Lane) Gone() bool { return l.gone.Load() }

// Spread tells whether the kernel spreads the frames over the workers.
func (l *Lane) Spread() bool { return l.spread != port.Single }

// Reader returns the ID of the worker that receives the lane's frames; a poller's is the number of workers.
func (l *Lane) Reader() int { return l.reader.Load().id }
