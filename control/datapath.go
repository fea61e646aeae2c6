package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/gate"
)

// exchange is a change of a pair's datapath:
//
//	step    what                                                       frames that come meanwhile
//	calm    the mode becomes inline, where nothing waits but in queues  pass
//	narrow  the ends do themselves what the new one can't carry        pass
//	shut    the gate of the inner ends                                 are dropped and counted from here
//	drain   everything on its way comes out                            …
//	swap    the old carrier closes, the new one opens                  …
//	open    the gate                                                   pass
//	mode    from inline to what is wanted                              pass
//
// Mode poller of tc is the exception: it begins and ends behind the gate, as it would drop frames too.
//
// No two frames of a flow are on different ways at a time. What comes past the gate while nobody carries
// is found in the outer devices' counters.
type exchange struct {
	d      *Daemon
	s      *slot
	p      *pair
	policy *kern.Policy
	gate   *gate.Gate
	was    *epair.PairConfig // how the datapath of before begins again
	// What the outer devices had received when the old carrier was empty, and how much more that was than carriers had.
	arrived [2]uint64
	more    [2]int64
	dropped uint64
	blocked time.Duration
}

// refuseExchange tells why a pair's datapath can't be changed while it runs.
func refuseExchange(p *pair, to string) error {
	from := p.cfg.Datapath
	const cure = "(delete the pair and add it anew)"
	if p.persistent() {
		return fmt.Errorf("%w: datapath %s can't become %s: the pair is persistent, and a killed daemon would leave half of each %s", ErrConflict, from, to, cure)
	}
	if from == "direct" || to == "direct" {
		return fmt.Errorf("%w: datapath %s can't become %s while the pair exists: direct is one veth, the others stitch two %s", ErrConflict, from, to, cure)
	}
	for _, e := range []*epair.End{p.ends.A, p.ends.B} {
		switch e.Kind() {
		case epair.TAP:
			return fmt.Errorf("%w: datapath %s can't become %s: only a process can take the frames of the tap %s", ErrConflict, from, to, e.Name())
		case epair.Dev:
			return fmt.Errorf("%w: datapath %s can't become %s while the pair exists: what %s receives meanwhile would reach its own stack %s", ErrConflict, from, to, e.Name(), cure)
		}
	}
	return nil
}

// exchange changes the datapath, and the mode. All or nothing: after an error the old datapath carries
// again; if it can't either, the pair says so as its trouble. The caller has taken s, and holds d.policy.
func (d *Daemon) exchange(s *slot, to, mode string) (Change, error) {
	start := time.Now()
	x := &exchange{d: d, s: s, p: s.get()}
	if err := refuseExchange(x.p, to); err != nil {
		return Change{}, err
	}
	next := x.p.cfg
	next.Datapath, next.Mode = to, mode
	if err := x.prepare(); err != nil {
		return Change{}, err
	}
	if err := errors.Join(x.change(&next), x.end()); err != nil {
		return Change{}, err
	}
	return Change{Dropped: x.dropped, TookMicros: micros(time.Since(start)), BlockedMicros: micros(x.blocked)}, nil
}

// prepare makes the gate, open.
func (x *exchange) prepare() (err error) {
	if x.policy, err = x.d.kernel.open(x.d.steer, x.d.cpus); err != nil {
		return err
	}
	var inner [2]kern.Device
	for i, e := range []*epair.End{x.p.ends.A, x.p.ends.B} {
		ns, err := e.Space()
		if err != nil {
			return err
		}
		defer ns.Close()
		inner[i] = kern.Device{NetNS: ns.FD(), Ifindex: e.InnerIndex(), Name: e.Name()}
	}
	x.gate, err = gate.New(inner)
	if err == nil {
		x.s.update(func(p *pair) { p.gate = x.gate })
	}
	return err
}

// change takes all steps, or takes them back.
func (x *exchange) change(next *epair.PairConfig) error {
	old := x.p.cfg
	x.was = first(&old)
	err := x.mode(calm(&old).Mode)
	if err == nil {
		err = x.run(first(next))
	}
	if err == nil {
		err = x.mode(next.Mode)
	}
	if err == nil {
		return nil
	}
	if x.p.cfg.Datapath != old.Datapath {
		err = errors.Join(err, x.run(first(&old)))
	}
	if _, lost := x.p.carrier.(noCarrier); lost {
		return err
	}
	return errors.Join(err, x.mode(old.Mode))
}

// first is cfg with the mode in which its datapath begins. Ports of the user datapath that the kernel spreads are opened so.
func first(cfg *epair.PairConfig) *epair.PairConfig {
	if cfg.Datapath == "user" {
		return cfg
	}
	return calm(cfg)
}

// calm is cfg with the mode in which its datapath ends.
func calm(cfg *epair.PairConfig) *epair.PairConfig {
	c := *cfg
	if !pollsBacklog(cfg) {
		c.Mode = "inline"
	}
	return &c
}

// pollsBacklog says whether a pair has mode poller of tc. Mode inline has its frames in other queues.
func pollsBacklog(cfg *epair.PairConfig) bool { return cfg.Datapath == "tc" && cfg.Mode == "poller" }

// mode changes the mode while frames pass.
func (x *exchange) mode(to string) error {
	if x.p.cfg.Mode == to {
		return nil
	}
	c, err := x.p.carrier.setMode(to)
	x.dropped += c.Dropped
	if err == nil {
		x.s.update(func(p *pair) { p.becomes(to) })
	}
	return err
}

// run takes the steps from narrow to open.
func (x *exchange) run(next *epair.PairConfig) error {
	old := x.p.cfg
	// Mode poller of tc has changed offloads itself, and needs them when it ends; then it's left to open.
	narrow := stricter(carries(next), carries(&old)) && !pollsBacklog(&old)
	if narrow {
		if err := x.offloads(next); err != nil {
			return errors.Join(err, x.offloads(&old))
		}
	}
	shut := time.Now()
	defer func() { x.blocked += time.Since(shut) }()
	err := x.gate.Shut()
	if err == nil {
		err = x.drain()
	}
	if err == nil {
		x.arrived, x.more, err = x.count()
	}
	if err == nil {
		return errors.Join(x.swap(&old, next), x.countMissed(), x.gate.Open())
	}
	_, back := x.p.carrier.setMode(old.Mode)
	if narrow {
		back = errors.Join(x.offloads(&old), back)
	}
	return errors.Join(err, back, x.gate.Open())
}

// carries says what can cross a pair with a frame.
func carries(cfg *epair.PairConfig) epair.Carry {
	switch {
	case cfg.Datapath == "xdp" || cfg.Datapath == "user" && cfg.Port == "xdp":
		return epair.CarryNothing
	case cfg.Datapath == "user":
		return epair.CarryVNet
	}
	return epair.CarryAll
}

// stricter says whether a carries less than b.
func stricter(a, b epair.Carry) bool {
	order := []epair.Carry{epair.CarryAll, epair.CarryVNet, epair.CarryNothing}
	return slices.Index(order, a) > slices.Index(order, b)
}

func (x *exchange) offloads(cfg *epair.PairConfig) error {
	return errors.Join(x.p.ends.A.SetOffloads(carries(cfg)), x.p.ends.B.SetOffloads(carries(cfg)))
}

// swap closes the old carrier, which is empty, and opens the new one; or the old one again.
func (x *exchange) swap(old, next *epair.PairConfig) (err error) {
	if err = x.close(); err == nil {
		err = x.open(next, "set while it ran")
	}
	if err == nil {
		return nil
	}
	if x.was.Datapath == old.Datapath {
		old = x.was
	}
	if back := x.open(old, "its successor couldn't be made"); back != nil {
		err = fmt.Errorf("%w; nor can the old datapath carry the pair again: %w", err, back)
		x.s.update(func(p *pair) { p.carrier = noCarrier{OneLine(err)} })
	}
	return err
}

// close ends the old carrier.
func (x *exchange) close() error {
	var last Pair
	err := x.p.carrier.close()
	x.p.carrier.answer(&last)
	x.s.update(func(p *pair) {
		p.past.take(&last)
		p.carrier = noCarrier{}
	})
	return err
}

// open makes the carrier of cfg, and the pair what cfg says.
func (x *exchange) open(cfg *epair.PairConfig, why string) error {
	made := &pair{cfg: *cfg, ends: x.p.ends, why: append([]string{
		"datapath " + cfg.Datapath + ": " + why, "mode " + cfg.Mode + ": " + modeMeans(cfg),
	}, x.p.ends.Warnings()...)}
	c, err := x.d.carry(made, cfg.Mode)
	if err != nil {
		return err
	}
	x.s.update(func(p *pair) { p.cfg, p.why, p.carrier = made.cfg, made.why, c })
	return nil
}

// end takes the gate away.
func (x *exchange) end() error {
	err := x.gate.Detach()
	n, rerr := x.gate.Dropped()
	x.s.update(func(p *pair) {
		p.gate = nil
		p.past.stopped(n)
	})
	x.dropped += n[0].Frames + n[1].Frames
	return errors.Join(err, rerr, x.gate.Close())
}
