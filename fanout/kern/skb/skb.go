// Package skb is the datapaths direct and tc: frames cross as socket buffers, as the kernel's own stack
// has them, with all their offloads.
//
//	direct   a0 ═══════════════════ b0       a veth pair: nobody is in the middle
//	tc       a0 ═══ a1 ┄ tcx ┄ b1 ═══ b0     outer sides, or existing devices, stitched by programs
//
// The frame takes the way of any veth frame: the sender's CPU puts it into a CPU's backlog, and
// that CPU receives it. In mode inline it is the backlog of the sender's CPU. In mode pool a program at the
// sender's end chooses the CPU by the policy's hash and table; it writes it into the frame's hash, by which RPS
// (Documentation/networking/scaling.rst) chooses the backlog; and the program at the far end takes
// it off again.
//
//	mode     egress of an inner end   RPS        ingress of the far inner end
//	inline   -                        off        -
//	pool     fence, mark              all CPUs   fence, takes the mark off
//	poller   as inline; a thread of the kernel's polls the receiving side instead of a backlog
//
// Between the two the frame may be in one queue only, a CPU's backlog, or in several of the same CPU. So mode
// inline is the slot "sender's CPU" of mode pool (kern.Local): modes change by the fence, without a
// lost frame. A pair that is inline has no RPS and no mark, whatever it was before. Between mode poller and the others
// frames are dropped until the old way is empty.
package skb

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/epair-net/epair/fanout/kern"
)

// crossing is a pair of either datapath. What differs is which hooks it has.
type crossing struct {
	name   string
	policy *kern.Policy
	keep   *kern.Keep // nil: it ends with the process

	mu      sync.Mutex // guards what follows
	closed  bool
	mode    kern.Mode
	hooks   []*hook
	masks   []*mask // where the pool's CPU is chosen
	hops    int     // backlogs that a frame passes, one after the other
	progs   *programs
	meters  [2]meter
	poller  *poller
	noPool  error // why there is no mode pool
	settled time.Time
	watches *watches // tc: of the inner ends' addresses
	targets *targets
	// Unsteered frames of earlier modes, of which the ledger doesn't tell.
	unsteered [2]uint64
	last      [2]kern.Ledger // when it was closed
	notes     []string
	// Of one that is kept.
	was    *state // what another process left
	torn   string // why that can't be taken over as it is
	base   [2]offloads
	usable []int // what the fence was made for
}

// meter is what one direction's ledger is read from, besides the programs' counters.
type meter interface {
	read(kern.Counts) (kern.Ledger, error)
	stats() []*stats
	close() error
}

// start takes over what there is, or lays a new crossing of a mode.
func (c *crossing) start(mode kern.Mode) error {
	if c.keep != nil {
		for i, h := range c.hooks {
			h.pin = c.keep.Pin(fmt.Sprintf("link-%d", i))
		}
		if err := c.readBase(); err != nil {
			return err
		}
	}
	done, err := c.takeOver()
	if err == nil && !done {
		err = c.lay(mode)
	}
	for _, p := range c.places() {
		p.borrowed = false
	}
	if err != nil {
		return err
	}
	return c.save(false)
}

// lay loads and attaches the programs of a mode. What is on its way isn't fenced: a new pair carries nothing.
func (c *crossing) lay(mode kern.Mode) error {
	for _, h := range c.hooks {
		if err := c.progs.load(h.plain); err != nil {
			return err
		}
	}
	var err error
	if mode == kern.Pool {
		c.mode, err = mode, c.startPool()
	} else {
		c.mode, err = kern.Inline, errors.Join(c.setMasks(nobody), c.swap(true, false), c.swap(false, false))
		if err == nil {
			_, err = c.setMode(mode)
		}
	}
	return err
}

func (c *crossing) places() (all []*place) {
	for _, h := range c.hooks {
		all = append(all, h.where)
	}
	for _, e := range c.poller.ends {
		if e != nil {
			all = append(all, e.tx, e.rx)
		}
	}
	return all
}

// nobody is the mask of a device without RPS.
var nobody = []byte("0")

// Close implements kern.Crossing. It doesn't wait for frames on their way: in mode pool those may be overtaken by others
// that a direct pair carries then.
func (c *crossing) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	if c.mode == kern.Poller {
		if _, err := c.leavePoller(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.detach())
	for dir := range c.last {
		l, err := c.ledger(dir)
		c.last[dir], errs = l, append(errs, err)
	}
	return errors.Join(append(errs, c.free())...)
}

// detach takes all programs off. The mark goes on no frame before nobody takes it off. The kernel waits for an RCU grace period
// with each program, longer than a frame waits in a backlog.
func (c *crossing) detach() error {
	var errs []error
	for _, takesMark := range []bool{false, true} {
		for _, h := range c.hooks {
			if h.takesMark == takesMark {
				errs = append(errs, h.put(nil))
			}
		}
	}
	return errors.Join(errs...)
}

// free undoes what was made, as far as it was.
func (c *crossing) free() error {
	errs := []error{c.detach()}
	for _, m := range c.masks {
		errs = append(errs, m.restore())
	}
	errs = append(errs, c.release())
	if c.keep != nil {
		errs = append(errs, c.keep.Clear())
	}
	return errors.Join(errs...)
}

// release gives up what the process has.
func (c *crossing) release() error {
	var errs []error
	for _, h := range c.hooks {
		if h.link != nil {
			errs = append(errs, h.link.Close())
		}
	}
	for _, m := range c.masks {
		errs = append(errs, m.close())
	}
	for _, m := range c.meters {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	if c.targets != nil {
		errs = append(errs, c.watches.remove(c.targets))
	}
	if c.progs != nil {
		errs = append(errs, c.progs.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close crossing %s: %w", c.name, err)
	}
	return nil
}

// Threads implements kern.Crossing.
func (c *crossing) Threads() []kern.Thread {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.poller.list()
}

// Notes implements kern.Crossing.
func (c *crossing) Notes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == kern.Poller {
		return append(slices.Clone(c.notes), pollerNotes...)
	}
	return slices.Clone(c.notes)
}
