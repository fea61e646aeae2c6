package skb

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
)

// NewDirect makes the crossing of a plain veth pair, whose sides are the inner ends. RPS masks of
// both are epair's until Close. In mode inline nothing else is changed: it is a plain veth pair. Mode poller
// needs ends that are up.
func NewDirect(cfg kern.Config) (kern.Crossing, error) {
	c, err := newCrossing(cfg)
	if err != nil {
		return nil, fmt.Errorf("cross %s directly: %w", cfg.Name, err)
	}
	if err := c.layDirect(&cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("cross %s directly: %w", cfg.Name, err), c.undo())
	}
	return c, nil
}

func newCrossing(cfg kern.Config) (*crossing, error) {
	c := &crossing{name: cfg.Name, policy: cfg.Policy, keep: cfg.Keep, hops: 1}
	err := c.readState()
	if err == nil {
		c.progs, err = newPrograms(cfg.Policy, cfg.Keep)
	}
	if c.was != nil && errors.Is(err, ebpf.ErrMapIncompatible) {
		err = c.forget("its maps have another form")
		if err == nil {
			c.progs, err = newPrograms(cfg.Policy, cfg.Keep)
		}
	}
	return c, err
}

func (c *crossing) layDirect(cfg *kern.Config) error {
	ends := [2]kern.End{cfg.A, cfg.B}
	c.poller = newPoller(ends, [2]kern.Device{cfg.A.Inner, cfg.B.Inner})
	for i, e := range ends {
		if e.Inner.Ifindex == 0 || e.Outer.Ifindex != 0 {
			return fmt.Errorf("%w: end %c isn't a side of a veth pair that joins both ends (use tc, xdp or user)", kern.ErrRefused, 'a'+i)
		}
	}
	c.progs.countTx = [2]bool{true, true}
	for dir, way := range ways {
		from, to := ends[dir].Inner, ends[1-dir].Inner
		c.hooks = append(c.hooks, egress(from, "enter"+way, "hold"+way), ingress(to, "", "leave"+way, true))
	}
	for dir := range ends {
		if err := c.openDirect(dir, ends[dir].Inner, ends[1-dir].Inner); err != nil {
			return err
		}
	}
	c.notes = []string{"bytes don't have those of frames that were dropped, and the frames of each CPU are those of mode pool"}
	return c.start(cfg.Mode)
}

// openDirect opens what is read and set for one direction.
func (c *crossing) openDirect(dir int, from, to kern.Device) error {
	m := &directMeter{}
	m.s.fit = func(v []uint64) bool { return v[2] >= v[0] }
	c.meters[dir] = m
	err := within(to, func(s *sysfs) error {
		if err := m.s.open(s, to, "rx_packets", "rx_bytes"); err != nil {
			return err
		}
		mask, err := openMask(s, to)
		if err == nil {
			c.masks = append(c.masks, mask)
		}
		return err
	})
	if err != nil {
		return err
	}
	return within(from, func(s *sysfs) error { return m.s.open(s, from, "tx_packets", "tx_bytes", "tx_dropped") })
}

// ways are the endings of the programs' names, by direction.
var ways = [2]string{"_ab", "_ba"}

// directMeter reads what the two devices count:
//
//	rx       what the sender's device sent or dropped, and programs dropped in front of it
//	tx       what the far end's device received
//	backlog  dropped by the sender's device (tx_dropped): the far end's backlog, in mode poller its ring, is full, or it's down
//	gone     sent, but not received when the devices went
type directMeter struct{ s stats }

func (m *directMeter) stats() []*stats { return []*stats{&m.s} }
func (m *directMeter) close() error    { return m.s.close() }

func (m *directMeter) read(n kern.Counts) (kern.Ledger, error) {
	v, err := m.s.values() // received first, so that a difference is what's queued
	received, sent, lost := v[0], v[2], v[4]
	l := kern.Ledger{
		Rx: sent + lost + n.Drops["fence"] + n.Drops["classify"], RxBytes: v[3],
		Tx: received, TxBytes: v[1], PerCPU: n.PerCPU,
		Drops: maps.Clone(n.Drops),
	}
	add(l.Drops, "backlog", lost, 0)
	if m.s.gone {
		add(l.Drops, "gone", sent, received)
	}
	return l, err
}
