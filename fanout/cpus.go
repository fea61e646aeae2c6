package fanout

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// SetCPUs moves the workers to other CPUs while they forward, worker w to the w-th of cpus, and each
// poller to the CPU that it would have had. All or nothing. Frames stay where they are: their
// order and number don't depend on CPUs. So do rings and buffers: a worker that goes to another NUMA node
// reaches for them from there until its pairs are added again.
//
// Another number of workers is refused: each table names workers, and each port has a
// queue or sender per worker.
func (p *Pool) SetCPUs(cpus []int) (Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Change{}, fmt.Errorf("set pool cpus: %w", ErrClosed)
	}
	if len(cpus) != len(p.workers) {
		return Change{}, fmt.Errorf("set pool cpus: %d CPUs for %d workers: the number can't change while pairs are forwarded (start the pool anew, or name %d)",
			len(cpus), len(p.workers), len(p.workers))
	}
	c, old := p.newChange(), p.cfg.CPUs
	err := p.pin(cpus)
	if err != nil {
		err = errors.Join(err, p.pin(old))
	} else {
		p.cfg.CPUs = slices.Clone(cpus)
	}
	r := c.sum(p, err)
	if err != nil {
		return r, fmt.Errorf("set pool cpus: %w", err)
	}
	return r, nil
}

// pin lets each worker run on its CPU of set.
func (p *Pool) pin(set []int) error {
	for i, w := range p.workers {
		if err := w.repin(set[i]); err != nil {
			return err
		}
	}
	for _, pair := range p.pairs {
		if pair.own == nil {
			continue
		}
		if err := pair.own.repin(set[pair.index%len(set)]); err != nil {
			return err
		}
	}
	return nil
}

// repin lets w run on another CPU.
func (w *worker) repin(cpu int) error {
	if w.cpu == cpu {
		return nil
	}
	err := w.do(func() error { return pinThread(cpu) })
	if err == nil {
		w.cpu = cpu
	}
	return err
}

// pinThread lets the calling thread run on cpu alone.
func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin worker to cpu %d: %w (choose one of the CPUs this process may use)", cpu, err)
	}
	return nil
}
