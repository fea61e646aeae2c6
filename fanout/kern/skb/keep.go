package skb

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// A crossing that is kept leaves its programs, by links that have names; its maps; masks of RPS; threads; and this:
type state struct {
	Layout   int       `json:"layout"` // kern.KeepLayout
	Mode     kern.Mode `json:"mode"`
	Changing bool      `json:"changing,omitempty"` // the mode was being changed: what there is can be a mixture

	Masks     [][]string  `json:"masks"` // what RPS was before, by mask and queue
	Stats     [][]uint64  `json:"stats"` // where devices' counters began, by meter
	Unsteered [2]uint64   `json:"unsteered"`
	Buckets   int         `json:"buckets,omitempty"` // what the fence was made for
	CPUs      []int       `json:"cpus,omitempty"`
	Base      [2]offloads `json:"base"`             // offloads when it was made
	Poller    [2]offloads `json:"poller,omitempty"` // what mode poller changed
	NAPIs     [2][]uint32 `json:"napis,omitempty"`  // which threads it has made
}

// offloads are those of one direction, as in polled.
type offloads struct {
	TSO map[string]bool `json:"tso,omitempty"`
	GRO map[string]bool `json:"gro,omitempty"`
}

// readState reads what another process has left. What this one can't understand is removed, but for what it did to devices.
func (c *crossing) readState() error {
	if c.keep == nil || c.keep.Was == nil {
		return nil
	}
	c.was = &state{}
	switch err := json.Unmarshal(c.keep.Was, c.was); {
	case err != nil:
		return c.forget("its state can't be read")
	case c.was.Layout != kern.KeepLayout:
		return c.forget(fmt.Sprintf("its maps are of layout %d, not %d", c.was.Layout, kern.KeepLayout))
	case c.was.Changing:
		c.torn = "a process was killed while it changed the mode"
	}
	return nil
}

// forget removes maps and links that can't be taken over; with the maps all counters begin anew.
func (c *crossing) forget(why string) error {
	c.torn, c.was.Stats, c.was.Unsteered = why, nil, [2]uint64{}
	return c.keep.Clear()
}

// takeOver makes what another process left this crossing's own, while frames pass. All programs are exchanged for those of this process,
// which have its policy. done is false if nothing is left, or what is left must be laid anew; then nothing is left.
func (c *crossing) takeOver() (done bool, err error) {
	if c.was == nil {
		return false, nil
	}
	if err := c.findLinks(); err != nil {
		return false, err
	}
	c.restore()
	if c.torn == "" && c.was.Mode == kern.Pool {
		if err := c.sameFence(); err != nil {
			return false, err
		}
	}
	if c.torn != "" {
		c.notes = append(c.notes, "programs laid anew, as "+c.torn)
		return false, c.reset()
	}
	for _, h := range c.hooks {
		if err := c.progs.load(h.plain); err != nil {
			return false, err
		}
	}
	switch c.was.Mode {
	case kern.Pool:
		err = c.takePool()
	case kern.Poller:
		err = errors.Join(c.swap(true, false), c.swap(false, false), c.takeThreads())
	default:
		err = errors.Join(c.swap(true, false), c.swap(false, false))
	}
	c.mode = c.was.Mode
	return true, err
}

// findLinks opens the links. If others are there than the mode has, it is torn.
func (c *crossing) findLinks() error {
	for _, h := range c.hooks {
		there, err := h.find()
		if err != nil {
			return err
		}
		if want := h.name(c.was.Mode == kern.Pool) != ""; c.torn == "" && there != want {
			c.torn = "programs are missing, or at another interface"
		}
	}
	return nil
}

// restore takes over what was before the crossing, and where its counters began.
func (c *crossing) restore() {
	for i, m := range c.masks {
		if i < len(c.was.Masks) && len(c.was.Masks[i]) == len(m.old) {
			for q, text := range c.was.Masks[i] {
				m.old[q] = []byte(text)
			}
		}
	}
	for i, s := range c.stats() {
		if i < len(c.was.Stats) && len(c.was.Stats[i]) == len(s.all) {
			for j, st := range s.all {
				st.base = c.was.Stats[i][j]
			}
		}
	}
	c.unsteered = c.was.Unsteered
}

// stats are those of all meters.
func (c *crossing) stats() (all []*stats) {
	for _, m := range c.meters {
		all = append(all, m.stats()...)
	}
	return all
}

// sameFence tells whether the fence that there is has what this process would make.
func (c *crossing) sameFence() error {
	d, err := drainOf(c.policy)
	if err != nil {
		return err
	}
	usable, err := d.usable()
	if err == nil && (!slices.Equal(usable, c.was.CPUs) || c.policy.Buckets() != c.was.Buckets) {
		c.torn = "the table has another size, or RPS other CPUs"
	}
	return err
}

// takePool exchanges the programs of mode pool: table and hash of those of before may be others. So all buckets go to where their frames
// are, as when the mode changes, and then where this process's table says.
func (c *crossing) takePool() error {
	d, err := drainOf(c.policy)
	if err != nil {
		return err
	}
	all, err := c.readyPool(d)
	if err != nil {
		return err
	}
	if err := c.progs.setLocal(true); err != nil {
		return err
	}
	if err := c.await(d, true); err != nil {
		return err
	}
	unsteered := c.unsteered
	err = c.engage(d, all)
	c.unsteered = unsteered
	return err
}

// takeThreads takes over the threads, and gives those NAPIs one that have none: their device was down meanwhile.
func (c *crossing) takeThreads() error {
	if c.poller.refused != nil {
		return c.poller.refused
	}
	for i, e := range c.poller.ends {
		e.tso, e.gro = c.was.Poller[i].TSO, c.was.Poller[i].GRO
	}
	if err := c.startThreads(); err != nil {
		return err
	}
	for i, e := range c.poller.ends {
		e.gro = c.was.Poller[i].GRO
		if e.threads != nil {
			e.threads.Own(c.was.NAPIs[i])
		}
	}
	return nil
}

// reset makes it a crossing without programs, as inline has none, whatever it was.
func (c *crossing) reset() error {
	c.was.Changing = true
	if err := c.write(c.was); err != nil {
		return err
	}
	errs := []error{c.detach(), c.setMasks(nobody)}
	for i, e := range c.poller.ends {
		if e == nil {
			continue
		}
		base := c.was.Base[i]
		errs = append(errs, e.rx.do(napi.StopAll), e.tx.do(putBack(base.TSO)), e.rx.do(putBack(base.GRO)))
	}
	return errors.Join(append(errs, c.keep.Clear(c.progs.pins()...))...)
}

func putBack(f map[string]bool) func(kern.Device) error {
	return func(d kern.Device) error {
		_, err := setFeatures(d, f)
		return err
	}
}

// save saves what there is now, or that it's changing.
func (c *crossing) save(changing bool) error {
	if c.keep == nil {
		return nil
	}
	s := &state{Layout: kern.KeepLayout, Mode: c.mode, Changing: changing, Unsteered: c.unsteered, CPUs: c.usable, Base: c.base}
	if c.usable != nil {
		s.Buckets = c.policy.Buckets()
	}
	for _, m := range c.masks {
		var texts []string
		for _, t := range m.old {
			texts = append(texts, string(t))
		}
		s.Masks = append(s.Masks, texts)
	}
	for _, x := range c.stats() {
		var bases []uint64
		for _, st := range x.all {
			bases = append(bases, st.base)
		}
		s.Stats = append(s.Stats, bases)
	}
	for i, e := range c.poller.ends {
		if e != nil && e.threads != nil {
			s.Poller[i], s.NAPIs[i] = offloads{e.tso, e.gro}, e.threads.Made()
		}
	}
	return c.write(s)
}

func (c *crossing) write(s *state) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = c.keep.Save(data)
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// readBase notes the offloads that mode poller may change.
func (c *crossing) readBase() error {
	if c.was != nil {
		c.base = c.was.Base
		return nil
	}
	for i, e := range c.poller.ends {
		if e == nil {
			continue
		}
		var err error
		if c.base[i].TSO, err = readFeatures(e.tx.dev, tso...); err != nil {
			return err
		}
		if c.base[i].GRO, err = readFeatures(e.rx.dev, "rx-gro"); err != nil {
			return err
		}
	}
	return nil
}

func readFeatures(d kern.Device, names ...string) (map[string]bool, error) {
	now := map[string]bool{}
	err := netns.Do(d.NetNS, func() error {
		all, err := ethtool.Features(d.Name)
		for _, name := range names {
			if f, ok := all[name]; ok && !f.Fixed {
				now[name] = f.On
			}
		}
		return err
	})
	return now, err
}

// Leave implements kern.Crossing.
func (c *crossing) Leave() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for dir := range c.last {
		l, err := c.ledger(dir)
		c.last[dir], errs = l, append(errs, err)
	}
	return errors.Join(append(errs, c.release())...)
}

// undo gives up what was made before an error. What another process left stays.
func (c *crossing) undo() error {
	if c.was != nil {
		return c.release()
	}
	return c.free()
}
