package sink

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// Sink counts frames at one interface. Its methods may be called at any time, from one goroutine at a time.
type Sink struct {
	// Coarse, read by Reset, makes the sink look at the clock for every eighth frame of a CPU only: times, timeline and the longest
	// gap are those of these. Counts stay exact. It is for loads at maximum rate, whose frames the clock would cost a tenth.
	Coarse bool

	cfg   Config
	objs  counterObjects
	hooks []io.Closer

	once sync.Once
	err  error
}

// New attaches a sink. In Frame mode the interface must have no XDP program yet, or one of epair's, which lets it count
// behind itself. It counts frames of run 0 until Reset.
func New(cfg Config) (*Sink, error) {
	if cfg.Flows < 1 || cfg.Flows > wire.MaxFlow {
		return nil, fmt.Errorf("create sink: %d flows: outside 1 to %d", cfg.Flows, wire.MaxFlow)
	}
	s := &Sink{cfg: cfg}
	err := s.load()
	if err == nil {
		err = netns.Do(cfg.NetNS, s.attach)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create sink: %w", err), s.Close())
	}
	return s, nil
}

func (s *Sink) load() error {
	spec, err := loadCounter()
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	spec.Maps["tracks"].MaxEntries = uint32(s.cfg.Flows)
	if err := spec.Variables["flows"].Set(uint32(s.cfg.Flows)); err != nil {
		return fmt.Errorf("set flows: %w", err)
	}
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return nil
}

func (s *Sink) attach() error {
	for _, index := range append([]int{s.cfg.Ifindex}, s.cfg.Also...) {
		hook, err := s.hook(index)
		if err != nil {
			return fmt.Errorf("attach to interface %d: %w", index, err)
		}
		s.hooks = append(s.hooks, hook)
	}
	return nil
}

func (s *Sink) hook(index int) (io.Closer, error) {
	if s.cfg.Mode == load.Skb {
		return link.AttachTCX(link.TCXOptions{Interface: index, Program: s.objs.SinkTcx, Attach: ebpf.AttachTCXIngress})
	}
	if hook, taken, err := behind(index, s.objs.SinkXdp); taken || err != nil {
		return hook, err
	}
	return link.AttachXDP(link.XDPOptions{Interface: index, Program: s.objs.SinkXdp, Flags: link.XDPDriverMode})
}

// Close detaches the sink. It is idempotent.
func (s *Sink) Close() error {
	s.once.Do(func() {
		var errs []error
		for _, hook := range s.hooks {
			errs = append(errs, hook.Close())
		}
		if err := errors.Join(append(errs, s.objs.Close())...); err != nil {
			s.err = fmt.Errorf("close sink: %w", err)
		}
	})
	return s.err
}
