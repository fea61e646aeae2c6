package skb

import (
	"errors"
	"fmt"
	"maps"

	"github.com/epair-net/epair/fanout/kern"
)

// NewDirect makes the crossing of a plain veth pair, whose sides are the inner ends. RPS masks of
// both are epair's until Close. Mode poller needs ends that are up.
func NewDirect(cfg kern.Config) (kern.Crossing, error) {
	c, err := newCrossing(cfg)
	if err != nil {
		return nil, fmt.Errorf("cross %s directly: %w", cfg.Name, err)
	}
	if err := c.layDirect(&cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("cross %s directly: %w", cfg.Name, err), c.free())
	}
	return c, nil
}

func newCrossing(cfg kern.Config) (*crossing, error) {
	p, err := newPrograms(cfg.Policy)
	return &crossing{name: cfg.Name, policy: cfg.Policy, hops: 1, progs: p}, err
}

func (c *crossing) layDirect(cfg *kern.Config) error {
	ends := [2]kern.End{cfg.A, cfg.B}
	c.poller = newPoller(ends, [2]kern.Device{cfg.A.Inner, cfg.B.Inner})
	for i, e := range ends {
		if e.Inner.Ifindex == 0 || e.Outer.Ifindex != 0 {
			return fmt.Errorf("%w: end %c isn't a side of a veth pair that joins both ends (use tc, xdp or user)", kern.ErrRefused, 'a'+i)
		}
	}
	c.progs.countRx, c.progs.countTx = [2]bool{true, true}, [2]bool{true, true}
	for dir, way := range ways {
		from, to := ends[dir].Inner, ends[1-dir].Inner
		c.hooks = append(c.hooks, egress(from, "count"+way, "enter"+way, "hold"+way), ingress(to, "tally"+way, "leave"+way, true))
	}
	for dir := range ends {
		if err := c.openDirect(dir, ends[dir].Inner); err != nil {
			return err
		}
	}
	c.notes = []string{
		"frames that somebody's own program on an end drops or sends elsewhere are counted as they pass epair's: behind it where they leave, in front of it where they arrive",
		"rx bytes are of frames that pass the stack's egress hook: XDP, AF_XDP and qdisc-bypassing senders are counted in frames only",
	}
	return c.start(cfg.Mode)
}

// openDirect opens what is read and set at an end: its mask, and what of its frames is lost.
func (c *crossing) openDirect(dir int, d kern.Device) error {
	s, err := openSysfs(d.NetNS)
	if err != nil {
		return err
	}
	defer s.close()
	m, err := openMask(s, d)
	if err != nil {
		return err
	}
	c.masks = append(c.masks, m)
	meter := &directMeter{}
	c.meters[dir] = meter
	return meter.open(s, d, "tx_packets", "tx_dropped")
}

// ways are the endings of the programs' names, by direction.
var ways = [2]string{"_ab", "_ba"}

// directMeter reads the sender's device: frames that reach the far end's backlog, and those that don't
// because it is full or the far end is down.
type directMeter struct{ stats }

// GRO, in mode poller, makes one frame of several before the program counts it.
func (m *directMeter) read(n kern.Counts) (kern.Ledger, error) {
	v, err := m.values()
	sent, lost := v[0], v[1]
	l := kern.Ledger{
		Rx: sent + lost + n.Drops["fence"] + n.Drops["classify"], RxBytes: n.RxBytes,
		Tx: n.Tx, TxBytes: n.TxBytes, PerCPU: n.PerCPU,
		Drops: maps.Clone(n.Drops),
	}
	if lost > 0 {
		l.Drops["backlog"] = lost
	}
	return l, err
}
