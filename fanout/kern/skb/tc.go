package skb

import (
	"errors"
	"fmt"
	"maps"

	"github.com/epair-net/epair/fanout/kern"
)

// NewTC makes the crossing that stitches two devices of one namespace: the outer sides of veth ends, or devices
// that exist. Programs at their ingress take every frame, so that their namespace sees none.
//
//	from  to    in mode pool the CPU is chosen    and the frame handed over
//	veth  veth  between inner end and outer side  to the peer; what isn't for the inner end's address, by its outer side
//	veth  dev   between inner end and outer side  to the device
//	dev   veth  between outer side and inner end  by the outer side
//	dev   dev   refused: the frame passes no backlog behind the program
//
// bpf_redirect_peer would mark all frames as the far end's own and go past its XDP program; it's for frames
// to its own address only.
func NewTC(cfg kern.Config) (kern.Crossing, error) {
	c, err := newCrossing(cfg)
	if err != nil {
		return nil, fmt.Errorf("cross %s by tc: %w", cfg.Name, err)
	}
	if err := c.layTC(&cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("cross %s by tc: %w", cfg.Name, err), c.undo())
	}
	return c, nil
}

func (c *crossing) layTC(cfg *kern.Config) error {
	ends := [2]kern.End{cfg.A, cfg.B}
	if err := checkTC(ends); err != nil {
		return err
	}
	c.hops = 2
	c.poller = newPoller(ends, [2]kern.Device{cfg.B.Outer, cfg.A.Outer})
	for dir := range ends {
		from, to := ends[dir], ends[1-dir]
		c.progs.countTx[dir] = isDev(from)
		c.hooks = append(c.hooks, tcHooks(from, to, ways[dir])...)
		if err := c.openTC(dir, from, to); err != nil {
			return err
		}
	}
	if isDev(cfg.A) && isDev(cfg.B) {
		c.noPool = fmt.Errorf("%w: mode pool between two existing devices, where no backlog follows the program (use datapath xdp or user)", kern.ErrRefused)
	}
	var err error
	if c.watches, err = watchesOf(c.policy); err != nil {
		return err
	}
	c.targets, err = c.watches.add(cfg.A.Outer, c.progs.target, [2]*targetEnd{targetOf(cfg.B), targetOf(cfg.A)})
	if err != nil {
		return err
	}
	c.notes = tcNotes(ends)
	return c.start(cfg.Mode)
}

func checkTC(ends [2]kern.End) error {
	for i, e := range ends {
		if e.Outer.Ifindex == 0 {
			return fmt.Errorf("%w: end %c has no outer side that tc could stitch (use datapath user)", kern.ErrRefused, 'a'+i)
		}
	}
	a, aerr := idOf(ends[0].Outer)
	b, berr := idOf(ends[1].Outer)
	err := errors.Join(aerr, berr)
	if err == nil && a != b {
		err = fmt.Errorf("%w: %s and %s are in different namespaces, which tc can't stitch (use datapath xdp or user)", kern.ErrRefused, ends[0].Outer.Name, ends[1].Outer.Name)
	}
	return err
}

func isDev(e kern.End) bool { return e.Inner.Ifindex == 0 }

func targetOf(e kern.End) *targetEnd {
	return &targetEnd{outer: e.Outer.Ifindex, dev: isDev(e)}
}

// tcHooks are those of one direction.
func tcHooks(from, to kern.End, way string) []*hook {
	cross := ingress(from.Outer, "cross"+way, "cross"+way, false)
	hooks := []*hook{cross}
	switch {
	case isDev(from) && isDev(to):
		return hooks
	case isDev(from):
		cross.pool = "push" + way
	case isDev(to):
		cross.pool, cross.takesMark = "pull"+way, true
	}
	if !isDev(from) {
		hooks = append(hooks, egress(from.Inner, "enter"+way, "hold"+way))
	}
	if !isDev(to) {
		hooks = append(hooks, ingress(to.Inner, "", "leave"+way, true))
	}
	return hooks
}

// openTC opens what is read and set for one direction.
func (c *crossing) openTC(dir int, from, to kern.End) error {
	m := &tcMeter{dev: isDev(to)}
	c.meters[dir] = m
	if !isDev(from) {
		if err := within(from.Inner, func(s *sysfs) error { return m.from.open(s, from.Inner, "tx_dropped") }); err != nil {
			return err
		}
	}
	if !isDev(to) {
		if err := within(to.Inner, func(s *sysfs) error { return m.to.open(s, to.Inner, "rx_packets", "rx_bytes") }); err != nil {
			return err
		}
		if err := within(to.Outer, func(s *sysfs) error { return m.to.open(s, to.Outer, "tx_packets", "tx_dropped") }); err != nil {
			return err
		}
	}
	rps := from.Outer // behind the inner end, where the frame was marked
	if isDev(from) {
		rps = to.Inner
	}
	if rps.Ifindex == 0 {
		return nil
	}
	return within(rps, func(s *sysfs) error {
		mask, err := openMask(s, rps)
		if err == nil {
			c.masks = append(c.masks, mask)
		}
		return err
	})
}

// within runs fn with the sysfs of a device's namespace.
func within(d kern.Device, fn func(*sysfs) error) error {
	s, err := openSysfs(d.NetNS)
	if err != nil {
		return err
	}
	defer s.close()
	return fn(s)
}

func tcNotes(ends [2]kern.End) (notes []string) {
	for i, e := range ends {
		if isDev(e) && !isDev(ends[1-i]) {
			notes = append(notes, fmt.Sprintf("end %c, %s: in mode pool frames of a bucket that moves may overtake each other in what follows the device, where epair can't see them", 'a'+i, e.Outer.Name))
		}
		if isDev(e) {
			notes = append(notes, fmt.Sprintf("end %c, %s: what the device itself drops after it was handed a frame isn't in the ledger, as its counters are of all its traffic", 'a'+i, e.Outer.Name))
		}
	}
	return append(notes, "rx bytes don't have those of frames that were lost before the program in the middle saw them")
}

// tcMeter reads one direction:
//
//	rx         what the program in the middle took, and what was lost before it
//	tx         what the far inner end received; of an existing device what it was handed
//	backlog    lost before the middle (sender's tx_dropped) and behind it (far outer side's): the backlog is full, or
//	           the other side down
//	peer_down  handed to the peer but not received, just when it went down: nothing else counts it
//	redirect   handed to the outer side, but neither sent nor dropped by it
type tcMeter struct {
	dev      bool  // the far end is an existing device
	from, to stats // as openTC has them
}

func (m *tcMeter) read(n kern.Counts) (kern.Ledger, error) {
	l := kern.Ledger{Rx: n.Rx, RxBytes: n.RxBytes, Tx: n.Redirect, TxBytes: n.TxBytes, PerCPU: n.PerCPU, Drops: maps.Clone(n.Drops)}
	from, err := m.from.values()
	if err != nil {
		return l, err
	}
	var lost uint64
	if len(from) > 0 { // a veth end: its drops come before the middle
		lost = from[0]
		l.Rx += lost + n.Drops["fence"] + n.Drops["classify"]
	}
	if !m.dev {
		to, err := m.to.values()
		if err != nil {
			return l, err
		}
		received, sent, dropped := to[0], to[2], to[3]
		l.Tx, l.TxBytes = received, to[1]
		lost += dropped
		add(l.Drops, "peer_down", n.Peer, received-sent)
		add(l.Drops, "redirect", n.Redirect, sent+dropped)
	}
	add(l.Drops, "backlog", lost, 0)
	return l, nil
}

// add adds to a reason what is missing of n. Counters that are read one after the other may
// have more of the later one.
func add(drops map[string]uint64, reason string, n, done uint64) {
	if n > done {
		drops[reason] += n - done
	}
}

func (m *tcMeter) stats() []*stats { return []*stats{&m.from, &m.to} }

func (m *tcMeter) close() error { return errors.Join(m.from.close(), m.to.close()) }
