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

// End opens the ports of one interface. It implements port.Opener.
type End struct {
	RxConfig
	Senders *Senders // of the same namespace
}

// OpenRx starts receiving the interface's frames.
func (e *End) OpenRx(w port.Worker) (port.Rx, error) {
	r, err := OpenRx(e.RxConfig, w)
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
