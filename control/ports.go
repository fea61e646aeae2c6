package control

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/packet"
	"github.com/epair-net/epair/fanout/port/tap"
	"github.com/epair-net/epair/fanout/port/xdp"
)

// jumboMTU is the largest MTU whose frames fit the packet port's 2-KiB slots.
const jumboMTU = 1800

// ports opens the ports of pairs. Packet senders are shared: one per worker and
// namespace, however many pairs there are.
type ports struct {
	workers int
	reaper  *reaper
	jumbo   bool
	spread  spreader

	mu      sync.Mutex
	senders map[int]*packet.Senders // by namespace descriptor, for the pool's workers
}

func newPorts(cfg *epair.Config, workers int) *ports {
	p := &ports{workers: workers, reaper: newReaper(), senders: map[int]*packet.Senders{}}
	for _, c := range cfg.Pairs {
		p.jumbo = p.jumbo || c.MTU > jumboMTU
	}
	return p
}

func (p *ports) close() error {
	errs := []error{p.reaper.wait(), p.spread.close()}
	for _, s := range p.senders {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// newSenders returns senders for one namespace. Frames to a dev end go through its
// queueing discipline, so that shaping that its owner has set up holds.
func (p *ports) newSenders(ns int, qdisc bool) *packet.Senders {
	c := packet.SenderConfig{NetNS: ns, Qdisc: qdisc}
	if p.jumbo {
		c.Slots, c.SlotLen = 64, 16<<10
	}
	return packet.NewSenders(c)
}

// pairPorts is the ports of one pair.
type pairPorts struct {
	progs   *programs
	a, b    port.Opener
	kind    [2]string // of a and b, as shown
	why     []string
	closers []io.Closer // in the order in which they close
}

func (p *pairPorts) close() error {
	var errs []error
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	p.closers = nil
	return errors.Join(errs...)
}

// open prepares the openers of a pair's ends. All or nothing. By progs the kernel spreads what they receive; nil: it
// doesn't.
func (p *ports) open(ends *epair.Pair, progs *programs) (*pairPorts, error) {
	pp := &pairPorts{progs: progs}
	if err := p.fill(pp, ends); err != nil {
		return nil, errors.Join(err, pp.close())
	}
	return pp, nil
}

func (p *ports) fill(pp *pairPorts, ends *epair.Pair) (err error) {
	cfg := ends.Config()
	var xp *xdp.Pair
	if cfg.Port == "xdp" {
		if xp, err = p.openXDP(ends); err != nil {
			return err
		}
		if xp != nil {
			pp.closers = append(pp.closers, xp)
		}
	}
	if pp.a, pp.kind[0], err = p.opener(pp, ends.A, &cfg, xp); err != nil {
		return err
	}
	pp.b, pp.kind[1], err = p.opener(pp, ends.B, &cfg, xp)
	return err
}

// opener returns the opener of one end, and its kind.
func (p *ports) opener(pp *pairPorts, e *epair.End, cfg *epair.PairConfig, xp *xdp.Pair) (o port.Opener, kind string, err error) {
	switch {
	case e.Kind() == epair.TAP:
		o, err = openTAP(pp, e)
		return o, "tap", err
	case xp != nil:
		x := xp.A
		if e.Side() == "b" {
			x = xp.B
		}
		pp.why = append(pp.why, fmt.Sprintf("port xdp on %s: %s mode, the kernel copies each frame once", e.Name(), x.Mode()))
		return x, "xdp", nil
	}
	o, err = p.openPacket(pp, e, cfg)
	return o, "packet", err
}

// openTAP returns the opener of a tap.
func openTAP(pp *pairPorts, e *epair.End) (port.Opener, error) {
	o, err := tap.New(e.TapFD(), e.MTU())
	if err == nil && pp.progs != nil {
		err = o.AddQueues(e.TapQueues(), pp.progs.tap.AttachTap)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// openPacket returns the opener of a packet end. A dev end's own stack must not get what epair took.
func (p *ports) openPacket(pp *pairPorts, e *epair.End, cfg *epair.PairConfig) (port.Opener, error) {
	dev := e.Kind() == epair.Dev
	if dev {
		c, err := claim(e.NetnsFD(), e.Ifindex(), e.Name())
		if err != nil {
			return nil, err
		}
		pp.closers = append(pp.closers, c)
	} else if err := e.SetOffloads(epair.CarryVNet); err != nil {
		return nil, err
	}
	ns := e.NetnsFD()
	own := p.newSenders(ns, dev)
	pp.closers = append(pp.closers, own)
	shared := own // a dev end's namespace may go with the pair
	if !dev {
		shared = p.shared(ns)
	}
	end := &packet.End{
		RxConfig: packet.RxConfig{NetNS: ns, Ifindex: e.Ifindex(), Slots: cfg.Ring, Promiscuous: dev},
		Senders:  shared,
	}
	switch {
	case pp.progs != nil && !dev:
		end.Attach = pp.progs.packet.AttachPacket
	case pp.progs != nil:
		pp.why = append(pp.why, fmt.Sprintf("steer user from %s: the interface isn't epair's, to be taken down if a ring must be replaced", e.Name()))
	}
	return &packetEnd{
		End: end,
		own: own, workers: p.workers, reaper: p.reaper,
	}, nil
}

// shared returns the senders of one namespace that all pairs share.
func (p *ports) shared(ns int) *packet.Senders {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.senders[ns] == nil {
		p.senders[ns] = p.newSenders(ns, false)
	}
	return p.senders[ns]
}

// packetEnd is a packet end that workers of the pool send to by the senders that all pairs share,
// and the pair's poller by one of the pair's own, which goes with it.
type packetEnd struct {
	*packet.End
	own     *packet.Senders
	workers int // of the pool
	reaper  *reaper
}

// OpenRx returns a receiving half whose close keeps no worker waiting.
func (e *packetEnd) OpenRx(w port.Worker) (port.Rx, error) {
	rx, err := e.End.OpenRx(w)
	if err != nil {
		return nil, err
	}
	late, err := e.reaper.late(rx.(*packet.Rx)) // what End opens
	if err != nil {
		return nil, err // not a nil *lateRx in an interface
	}
	return late, nil
}

// OpenTx returns a Tx of the worker's sender.
func (e *packetEnd) OpenTx(w port.Worker) (port.Tx, error) {
	if w.ID < e.workers {
		return e.End.OpenTx(w)
	}
	own := packet.End{RxConfig: e.RxConfig, Senders: e.own}
	return own.OpenTx(w)
}

// senders is how many workers may send to an end at a time: those of the pool and, while the mode
// changes, the pair's poller.
func senders(workers int) int { return workers + 1 }

// openXDP opens the sockets of the pair's veth ends; nil if it has none.
func (p *ports) openXDP(ends *epair.Pair) (*xdp.Pair, error) {
	c := xdp.PairConfig{Workers: senders(p.workers)}
	for _, x := range []struct {
		*epair.End
		cfg *xdp.EndConfig
	}{{ends.A, &c.A}, {ends.B, &c.B}} {
		if x.Kind() != epair.Veth {
			continue
		}
		if err := x.SetOffloads(epair.CarryNothing); err != nil {
			return nil, err
		}
		*x.cfg = xdp.EndConfig{NetNS: x.NetnsFD(), Ifindex: x.Ifindex()}
	}
	if c.A.Ifindex == 0 && c.B.Ifindex == 0 {
		return nil, nil
	}
	return xdp.Open(c)
}
