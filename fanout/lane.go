package fanout

import (
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// Lane is one direction of a pair.
type Lane struct {
	id     uint32 // index in Pool.lanes
	rx     port.Rx
	arena  *port.Arena            // rx's handle to the buffers of its reader
	reader atomic.Pointer[worker] // written by the pool, while nobody receives
	epoch  atomic.Uint64          // changes of the reader
	txs    []port.Tx              // by worker; nil where the worker doesn't send for the lane
	cells  []cell                 // by worker; the last is for a poller
	gone   atomic.Bool

	// The pool's own.
	from, to port.Opener
	attached bool // between begin and end

	// The reader's own.
	fence
	token  int32
	active bool // in the worker's list: Receive may have more
}

// Gone tells whether the near interface was deleted.
func (l *Lane) Gone() bool { return l.gone.Load() }

// Reader returns the ID of the worker that receives the lane's frames; a poller's is the number of workers.
func (l *Lane) Reader() int { return l.reader.Load().id }
