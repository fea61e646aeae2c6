package control

import (
	"errors"
	"sync"

	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/bpf"
)

// programs are the programs by which the kernel puts each frame where its flow's worker receives: into a
// queue of a tap, or the ring of a packet port. All pairs share them.
type programs struct {
	by          *fanout.Steering
	rss         *bpf.RSS
	tap, packet *bpf.Steering
}

func loadPrograms(by *fanout.Steering) (*programs, error) {
	p := &programs{by: by}
	var err error
	if p.rss, err = bpf.NewRSS(by.Hasher(), by.Table()); err != nil {
		return nil, err
	}
	if p.tap, err = p.rss.NewTapSteering(by.Table()); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if p.packet, err = p.rss.NewPacketSteering(by.Table()); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close gives the programs up. The kernel keeps them for the ports that have them.
func (p *programs) close() error {
	var errs []error
	for _, s := range []*bpf.Steering{p.tap, p.packet} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, p.rss.Close())...)
}

// spreader loads programs when a pair first needs them, and others when hash or table have changed since: what
// was opened before stays with its own.
//
// Concurrency contract: any goroutine may call all methods. Programs are borrowed: valid until they are asked
// for with another Steering, which who holds Daemon.policy doesn't see.
type spreader struct {
	mu   sync.Mutex
	by   *fanout.Steering // what was last asked for
	have *programs
	err  error // why there are none
}

// programs returns those for a hash and table.
func (s *spreader) programs(by *fanout.Steering) (*programs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == by {
		return s.have, s.err
	}
	err := s.drop()
	s.by = by
	s.have, s.err = loadPrograms(by)
	s.err = errors.Join(err, s.err)
	return s.have, s.err
}

func (s *spreader) drop() error {
	if s.have == nil {
		return nil
	}
	err := s.have.close()
	s.have = nil
	return err
}

// close is idempotent.
func (s *spreader) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = nil
	return s.drop()
}
