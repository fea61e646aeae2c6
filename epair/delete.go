package epair

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
)

// deleters bounds the goroutines that delete taps: each waits in the kernel, in a thread.
const deleters = 8

// DeleteAll deletes many pairs in a few requests: one by one, the kernel
// waits for all its readers after each link. It goes on after an error, reports all, and
// may then be called again.
func (e *Env) DeleteAll(pairs []*Pair) error {
	if err := e.begin(); errors.Is(err, ErrClosed) {
		return nil // Close has deleted all pairs
	}
	defer e.life.RUnlock()
	return e.deleteAll(pairs)
}

func (e *Env) deleteAll(pairs []*Pair) error {
	var todo []*Pair
	for _, p := range pairs {
		if p.setDeleted(true) {
			todo = append(todo, p)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	errs := []error{condemn(todo), e.deleteVeths(todo), e.deleteDirect(todo), e.deleteTAPs(todo)}
	for _, p := range todo {
		e.mon.remove(p.B)
		e.mon.remove(p.A)
		if err := p.finish(); err != nil {
			errs = append(errs, fmt.Errorf("delete pair %s: %w", p.cfg.Name, err))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		for _, p := range todo {
			p.setDeleted(false)
		}
	}
	return err
}

// setDeleted says whether it changed anything.
func (p *Pair) setDeleted(to bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.deleted != to
	p.deleted = to
	return changed
}

// deleteVeths deletes all veths by their outer sides.
func (e *Env) deleteVeths(pairs []*Pair) error {
	var errs []error
	group, found := e.newGroup(), false
	for _, p := range pairs {
		for _, end := range p.ends() {
			if end.cfg.Kind != Veth || end.portIndex == 0 {
				continue
			}
			if end.outerNS != e.private {
				errs = append(errs, end.deleteOuter())
				continue
			}
			found = true
			err := e.out.LinkSetGroup(at(end.portIndex), int(group))
			if err != nil && !missing(err) {
				errs = append(errs, fmt.Errorf("delete %s: %w", end.label(), denied(err)))
			}
		}
	}
	if found {
		if err := delGroup(e.private, group); err != nil {
			errs = append(errs, fmt.Errorf("delete veths: %w", denied(err)))
		}
	}
	return errors.Join(errs...)
}

// deleteOuter deletes a veth whose outer side is in a namespace that isn't ours, where others may have a link of
// that number by now: it must have our tag, or none yet, and then it was never out of our hands.
func (e *End) deleteOuter() error {
	e.mu.Lock()
	fresh := e.ns != nil
	e.mu.Unlock()
	err := e.outside(func(h *netlink.Handle) error {
		l, err := h.LinkByIndex(e.portIndex)
		if missing(err) || err == nil && l.Attrs().Alias != e.tag() && !(fresh && l.Attrs().Alias == "") {
			return nil
		}
		if err != nil {
			return err
		}
		return delLink(h, e.portIndex)
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", e.label(), denied(err))
	}
	return nil
}

// deleteTAPs deletes all taps, some at a time.
func (e *Env) deleteTAPs(pairs []*Pair) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, deleters)
	for _, p := range pairs {
		for _, end := range p.ends() {
			if end.cfg.Kind != TAP {
				continue
			}
			e.mon.remove(end) // before its descriptor means something else
			slots <- struct{}{}
			wg.Go(func() {
				if err := end.deleteTAP(); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("delete %s: %w", end.label(), denied(err)))
					mu.Unlock()
				}
				<-slots
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}
