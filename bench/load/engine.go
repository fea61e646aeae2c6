package load

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// engine makes the frames of one generator: a program in the kernel, or, for frames that are too long for it, a packet socket.
type engine interface {
	// give hands an order over. Afterwards nothing is done by the one before.
	give(genGenOrder) error
	// clear makes the next order begin with sequence number 0 and nothing sent.
	clear(flows []genGenFlow) error
	state() (genGenState, error)
	// run works until it is told to stop, on a thread in the namespace and bound to the CPU. A signal ends what it waits for.
	run(batch uint32, stopping *atomic.Bool) error
	Close() error
}

// live is the program.
type live struct {
	objs  genObjects
	input []byte
}

// give writes in two steps: the program must never see a start with what belonged to another order.
func (l *live) give(o genGenOrder) error {
	start := o.Start
	o.Start = never
	for range 2 {
		if err := l.objs.Orders.Put(uint32(0), &o); err != nil {
			return fmt.Errorf("order frames: %w", err)
		}
		o.Start = start
	}
	return nil
}

func (l *live) clear(flows []genGenFlow) error {
	if err := l.objs.States.Put(uint32(0), &genGenState{}); err != nil {
		return fmt.Errorf("clear generator: %w", err)
	}
	for i := range flows {
		if err := l.objs.Templates.Put(uint32(i), &flows[i]); err != nil {
			return fmt.Errorf("set flow %d: %w", i, err)
		}
	}
	return nil
}

func (l *live) state() (s genGenState, err error) {
	if err := l.objs.States.Lookup(uint32(0), &s); err != nil {
		return s, fmt.Errorf("read generator: %w", err)
	}
	return s, nil
}

func (l *live) run(batch uint32, stopping *atomic.Bool) error {
	for !stopping.Load() {
		if err := liveFrames(l.objs.Generate.FD(), l.input, math.MaxUint32, batch); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// Close frees the program.
func (l *live) Close() error { return l.objs.Close() }
