package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
)

// losses is struct epair_losses.
type losses struct{ Sent, Ring, Down, Dead, Redirect uint64 }

// noteLosses begins to count what the kernel loses of a device's frames and, if asked to, sends.
func (s *shared) noteLosses(id device, sent bool) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if err := s.o.EpairLost.Put(id, make([]losses, n)); err != nil {
		return fmt.Errorf("note losses: %w", kern.Explain(err))
	}
	return s.countSent(sent, 1)
}

// countSent lets more or fewer devices have counted what is sent to them.
func (s *shared) countSent(sent bool, more int) error {
	if !sent {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted += more
	if s.closed {
		return nil
	}
	if err := s.o.EpairCountSent.Set(uint32(s.counted)); err != nil {
		return fmt.Errorf("count what is sent: %w", err)
	}
	return nil
}

func (s *shared) forgetLosses(id device, sent bool) error {
	if err := s.countSent(sent, -1); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if err := s.o.EpairLost.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget losses: %w", err)
	}
	return nil
}

// lost returns what has been sent and lost since noteLosses, and what was sent by each CPU.
func (s *shared) lost(id device) (sum losses, sent []uint64, err error) {
	var all []losses
	if err := s.o.EpairLost.Lookup(id, &all); err != nil {
		return sum, nil, fmt.Errorf("read losses: %w", err)
	}
	for _, l := range all {
		sent = append(sent, l.Sent)
		sum.Sent += l.Sent
		sum.Ring += l.Ring
		sum.Down += l.Down
		sum.Dead += l.Dead
		sum.Redirect += l.Redirect
	}
	return sum, sent, nil
}

// clear forgets what workers had to drop for a port.
func (s *shared) clear(port uint32) error {
	n, err := ebpf.PossibleCPU()
	if err == nil {
		err = s.o.EpairGone.Put(port, make([]uint64, n))
	}
	if err != nil {
		return fmt.Errorf("clear counter: %w", err)
	}
	return nil
}

// gone is what workers had to drop for a port, as its device is gone.
func (s *shared) gone(port uint32) (sum uint64, err error) {
	var all []uint64
	if err := s.o.EpairGone.Lookup(port, &all); err != nil {
		return 0, fmt.Errorf("read counter: %w", err)
	}
	for _, n := range all {
		sum += n
	}
	return sum, nil
}
