package fanout

import (
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// Lane is one direction of a pair.
type Lane struct {
	id     uint32 // index in Pool.lanes
	rx     port.Rx
	reader *worker
	txs    []port.Tx // by worker ID; nil where the worker never sends for the lane
	cells  []cell    // by worker ID
	steer  *Steering // nil: whoever receives a frame sends it
	gone   atomic.Bool

	attached bool // the pool's: between begin and end

	// The reader's own.
	token  int32
	active bool // in the worker's list: Receive may have more
}

// Gone tells whether the near interface was deleted.
func (l *Lane) Gone() bool { return l.gone.Load() }

// Reader returns the ID of the worker that receives the lane's frames.
func (l *Lane) Reader() int { return l.reader.id }
