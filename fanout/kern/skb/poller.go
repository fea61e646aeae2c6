package skb

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/napi"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// poller is what mode poller changes on the devices. A veth receives by its NAPI, which can have a thread,
// while GRO is on there and TSO off at the side that sends (veth_xmit, drivers/net/veth.c).
//
//	          sends          receives, and has the thread
//	direct    an inner end   the other inner end
//	tc        an inner end   its outer side
type poller struct {
	refused error // why there is no mode poller
	ends    [2]*polled
}

// polled is one direction.
type polled struct {
	tx, rx  *place
	threads *napi.Threads
	tso     map[string]bool // of tx, before
	gro     map[string]bool // of rx, before
}

// newPoller takes the ends, which send, and for each the device that receives.
func newPoller(ends [2]kern.End, rx [2]kern.Device) *poller {
	p := &poller{}
	for i, e := range ends {
		if !e.Owned || e.Inner.Ifindex == 0 {
			p.refused = fmt.Errorf("%w: mode poller changes offloads of its ends, and end %c isn't epair's (use datapath xdp or user)", kern.ErrRefused, 'a'+i)
			return p
		}
		p.ends[i] = &polled{tx: placeOf(e.Inner), rx: placeOf(rx[1-i])}
		if p.refused = p.ends[i].tx.lost; p.refused != nil {
			return p
		}
	}
	return p
}

// pollerNotes are what a user should know in mode poller.
var pollerNotes = []string{
	"mode poller has TSO off at the ends, which halves what TCP can do, and GRO on where a thread receives: TCP segments may arrive merged, and are counted so",
	"a device that goes down loses its threads: set the mode again",
}

func (p *poller) list() (all []kern.Thread) {
	for _, e := range p.ends {
		if e != nil && e.threads != nil {
			all = append(all, e.threads.List()...)
		}
	}
	return all
}

// tso are the features of NETIF_F_ALL_TSO.
var tso = []string{"tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation", "tx-tcp-accecn-segmentation"}

// enterPoller changes from inline to poller. Frames that reach the ends are dropped from when the last frame
// goes into a backlog until that is out.
func (c *crossing) enterPoller() (kern.Change, error) {
	if c.poller.refused != nil {
		return kern.Change{}, c.poller.refused
	}
	for _, h := range c.hooks {
		if err := c.progs.load(h.hold); err != nil {
			return kern.Change{}, err
		}
	}
	d, err := drainOf(c.policy)
	if err != nil {
		return kern.Change{}, err
	}
	before, err := c.fenced()
	if err != nil {
		return kern.Change{}, err
	}
	start := time.Now()
	if err := c.startThreads(); err != nil {
		return kern.Change{}, errors.Join(err, c.stopThreads(nil))
	}
	err = errors.Join(c.holdFrames(true), d.wait(c.hops))
	if err == nil {
		err = c.setTSO(false)
	}
	if err != nil {
		return kern.Change{}, errors.Join(err, c.stopThreads(d))
	}
	c.mode = kern.Poller
	return c.changeAfter(start, before, c.holdFrames(false))
}

// leavePoller changes from poller to inline.
func (c *crossing) leavePoller() (kern.Change, error) {
	d, err := drainOf(c.policy)
	if err != nil {
		return kern.Change{}, err
	}
	before, err := c.fenced()
	if err != nil {
		return kern.Change{}, err
	}
	start := time.Now()
	if err := c.holdFrames(true); err != nil {
		return kern.Change{}, err
	}
	if err := c.stopThreads(d); err != nil {
		return kern.Change{}, err
	}
	return c.change(start, before)
}

func (c *crossing) changeAfter(start time.Time, before uint64, err error) (kern.Change, error) {
	change, cerr := c.change(start, before)
	return change, errors.Join(err, cerr)
}

// holdFrames makes the inner ends drop what they send, or lets it pass again.
func (c *crossing) holdFrames(on bool) error {
	for _, h := range c.hooks {
		if h.hold == "" {
			continue
		}
		name := h.plain
		if on {
			name = h.hold
		}
		if err := h.put(c.progs.byName[name]); err != nil {
			return err
		}
	}
	return nil
}

// startThreads makes the NAPIs and their threads, on the pool's CPUs in turn. No frame goes there yet.
func (c *crossing) startThreads() error {
	on := c.policy.CPUs()
	for i, e := range c.poller.ends {
		at := append(slices.Clone(on[i%len(on):]), on[:i%len(on)]...)
		err := e.rx.do(func(d kern.Device) (err error) {
			if e.gro, err = setFeatures(d, map[string]bool{"rx-gro": true}); err != nil {
				return err
			}
			e.threads, err = napi.Start(d, at)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stopThreads undoes startThreads and setTSO, as far as they came, and lets frames pass again. A thread
// that is stopped has received all there was. d is nil before frames were held.
func (c *crossing) stopThreads(d *drain) error {
	errs := []error{quiesce()}
	for _, e := range c.poller.ends {
		if e.threads != nil {
			errs = append(errs, e.rx.do(e.threads.Stop))
			e.threads = nil
		}
	}
	if d != nil {
		errs = append(errs, d.wait(c.hops))
	}
	c.mode = kern.Inline
	errs = append(errs, c.setTSO(true), c.holdFrames(false))
	for _, e := range c.poller.ends {
		if len(e.gro) == 0 {
			continue
		}
		errs = append(errs, e.rx.do(func(d kern.Device) error { _, err := setFeatures(d, e.gro); return err }))
		e.gro = nil
	}
	return errors.Join(errs...)
}

// setTSO turns TSO off at the sending sides, or back on where it was.
func (c *crossing) setTSO(back bool) error {
	for _, e := range c.poller.ends {
		want := e.tso
		if !back {
			want = map[string]bool{}
			for _, name := range tso {
				want[name] = false
			}
		}
		if len(want) == 0 {
			continue
		}
		err := e.tx.do(func(d kern.Device) error {
			before, err := setFeatures(d, want)
			if !back {
				e.tso = before
			}
			return err
		})
		if err != nil {
			return err
		}
		if back {
			e.tso = nil
		}
	}
	return nil
}

func setFeatures(d kern.Device, want map[string]bool) (before map[string]bool, err error) {
	err = netns.Do(d.NetNS, func() error {
		before, err = ethtool.SetFeatures(d.Name, want)
		return err
	})
	return before, err
}
