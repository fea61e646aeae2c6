package packet

import (
	"errors"
	"sync"

	"github.com/epair-net/epair/fanout/port"
)

// Senders are the Senders of one network namespace, one per worker.
//
// Concurrency contract: any goroutine may call For. Close comes after the last use of any of their Tx.
type Senders struct {
	cfg SenderConfig
	mu  sync.Mutex
	of  map[int]*Sender // by worker
}

// NewSenders returns Senders that are opened when they are first asked for.
func NewSenders(c SenderConfig) *Senders { return &Senders{cfg: c, of: map[int]*Sender{}} }

// For returns the Sender of a worker. The first call must come from the worker's own
// thread, so that the ring is on its NUMA node.
func (s *Senders) For(w port.Worker) (*Sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[w.ID]; have != nil {
		return have, nil
	}
	made, err := OpenSender(s.cfg)
	if err != nil {
		return nil, err
	}
	s.of[w.ID] = made
	return made, nil
}

// Close closes them all.
func (s *Senders) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for id, one := range s.of {
		err = errors.Join(err, one.Close())
		delete(s.of, id)
	}
	return err
}

// End opens the ports of one interface. It implements port.Spreader.
//
// Concurrency contract: one goroutine at a time opens and closes its receiving halves.
type End struct {
	RxConfig
	Senders *Senders // of the same namespace
	// Attach sets the program of the fan-out group that fd is a member of (PACKET_FANOUT_DATA). The
	// program's answer is the number of the receiving half. nil: frames aren't spread.
	//
	// Set it only for an interface that may go down for a moment when a ring must be replaced: one
	// that nobody but the caller manages.
	Attach func(fd int) error

	group group
}

var _ port.Spreader = (*End)(nil)

// OpenRx starts receiving the interface's frames; after Spread, once the last half is open.
func (e *End) OpenRx(w port.Worker) (port.Rx, error) {
	open := e.openSpread
	if e.group.size == 0 {
		open = func(w port.Worker) (*Rx, error) { return OpenRx(e.RxConfig, w) }
	}
	r, err := open(w)
	if err != nil {
		return nil, err // not a nil *Rx in an interface
	}
	return r, nil
}

// OpenTx returns a Tx of the worker's Sender.
func (e *End) OpenTx(w port.Worker) (port.Tx, error) {
	s, err := e.Senders.For(w)
	if err != nil {
		return nil, err
	}
	x, err := s.Tx(e.Ifindex, w)
	if err != nil {
		return nil, err
	}
	return x, nil
}
