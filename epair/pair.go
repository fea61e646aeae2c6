package epair

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/netns"
)

// DefaultMTU is the MTU of a pair that says none and has no dev end.
const DefaultMTU = 1500

// Pair is two ends that exist. It doesn't move a frame by itself.
type Pair struct {
	A, B *End

	env  *Env
	cfg  PairConfig
	kept *kept // of a persistent one, from when it's begun

	replaced string // why what another process left was removed

	mu      sync.Mutex // guards deleted
	deleted bool
}

// Create makes both ends of a pair, all or nothing. Outer sides are up, inner sides down: the
// caller can open its ports before the first frame moves. A name that is used by an interface
// which isn't ours is the error ErrTaken.
func Create(cfg PairConfig, env *Env) (*Pair, error) {
	cfg = cfg.WithDefaults()
	p := &Pair{env: env, cfg: cfg}
	p.A, p.B = newEnd(env, &cfg, 'a', cfg.A), newEnd(env, &cfg, 'b', cfg.B)
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("create pair %s: %w", cfg.Name, err)
	}
	defer env.life.RUnlock()
	err := p.create()
	if err == nil {
		env.publish(cfg.Name, p)
		return p, nil
	}
	err = fmt.Errorf("create pair %s: %w", cfg.Name, err)
	undo := env.deleteAll
	if p.Adopted() {
		undo = env.leaveAll
	}
	if derr := undo([]*Pair{p}); derr != nil {
		env.publish(cfg.Name, p) // for Close to try again
		err = errors.Join(err, derr)
	}
	return nil, err
}

// start checks what can be checked before anything is made.
func (p *Pair) start() error {
	if err := p.cfg.Check(); err != nil {
		return err
	}
	if err := p.env.begin(); err != nil {
		return err
	}
	if err := p.env.admit(p.cfg.Name); err != nil {
		p.env.life.RUnlock()
		return err
	}
	return nil
}

func (p *Pair) ends() [2]*End { return [2]*End{p.A, p.B} }

// create runs the steps. Whatever it got to, Delete undoes.
func (p *Pair) create() error {
	if err := p.openKept(); err != nil {
		return err
	}
	for _, e := range p.ends() {
		if err := e.enter(); err != nil {
			return fmt.Errorf("end %c: %w", e.side, err)
		}
	}
	if p.A.ns.Is(p.B.ns) && p.A.cfg.Name == p.B.cfg.Name {
		return fmt.Errorf("end b: both ends are interface %s in %s", p.B.cfg.Name, p.B.cfg.netns())
	}
	for _, e := range p.ends() {
		if e.cfg.Kind != Dev {
			continue
		}
		if err := e.attachDev(); err != nil {
			return fmt.Errorf("attach %s: %w", e.label(), denied(err))
		}
	}
	p.cfg.MTU = p.mtu()
	adopted, err := p.adopt()
	if err == nil && !adopted {
		err = p.createEnds()
	}
	if err == nil {
		err = p.note()
	}
	if err != nil {
		return err
	}
	for _, e := range p.ends() {
		if err := p.env.step("watch"); err != nil {
			return err
		}
		if err := p.env.mon.add(e); err != nil {
			return fmt.Errorf("watch %s: %w", e.label(), err)
		}
	}
	return p.env.step("finish")
}

// createEnds makes what doesn't exist yet.
func (p *Pair) createEnds() error {
	if p.direct() {
		if err := p.createDirect(); err != nil {
			return fmt.Errorf("create direct veth: %w", denied(err))
		}
		return nil
	}
	for i, e := range p.ends() {
		if e.cfg.Kind == Dev {
			continue
		}
		if err := p.placeOuter(e, p.ends()[1-i], true); err != nil {
			return err
		}
		if err := e.create(p); err != nil {
			return fmt.Errorf("create %s: %w", e.label(), denied(err))
		}
	}
	return nil
}

// mtu is what the user said, or what a dev end has, or the default.
func (p *Pair) mtu() int {
	mtu := p.cfg.MTU
	for _, e := range p.ends() {
		if e.cfg.Kind == Dev {
			mtu = cmp.Or(mtu, e.mtu)
		}
	}
	return cmp.Or(mtu, DefaultMTU)
}

// enter opens the end's namespace, or makes it.
func (e *End) enter() error {
	if err := e.env.step("enter namespace"); err != nil {
		return err
	}
	var err error
	// What exists already exists in a namespace that does.
	e.ns, e.owned, err = e.env.enterSpace(e.cfg.netns(), e.cfg.Kind != Dev)
	if e.cfg.Kind == Dev && errors.Is(err, netns.ErrNotExist) {
		return fmt.Errorf("find %s: %w (ip netns lists the named ones)", e.label(), err)
	}
	return err
}

// create makes the end's interface.
func (e *End) create(p *Pair) error {
	e.mtu = p.cfg.MTU
	if err := e.setMAC(); err != nil {
		return err
	}
	if e.cfg.Kind == TAP {
		return e.createTAP()
	}
	if err := e.createVeth(); err != nil {
		return err
	}
	if err := e.env.step("set offloads"); err != nil {
		return err
	}
	carry := CarryVNet
	if p.cfg.Port == "xdp" {
		carry = CarryNothing
	}
	return e.inside(func(ns *netns.NS, h *netlink.Handle) error { return e.setOffloads(ns, h, carry) })
}

// Name is the pair's name.
func (p *Pair) Name() string { return p.cfg.Name }

// Config is the pair's configuration with all defaults filled in, the MTU among them.
func (p *Pair) Config() PairConfig { return p.cfg }

// State is the worse of the ends' states.
func (p *Pair) State() State { return max(p.A.State(), p.B.State()) }

// Warnings says what the user should know of a pair that works.
func (p *Pair) Warnings() []string {
	var w []string
	if p.replaced != "" {
		w = append(w, p.replaced)
	}
	if a, b := p.A.mtu, p.B.mtu; a != b {
		w = append(w, fmt.Sprintf("end a has mtu %d and end b %d: longer frames are dropped at the smaller", a, b))
	}
	return w
}

// Delete removes the pair and all that was created for it. What is gone already is fine, and so is a
// second call. Ports should have been closed; those that are open find their device gone.
func (p *Pair) Delete() error { return p.env.DeleteAll([]*Pair{p}) }

// finish undoes what is left when the pair's links are deleted.
func (p *Pair) finish() error {
	var errs []error
	for _, e := range []*End{p.B, p.A} {
		e.detachDev()
		errs = append(errs, e.closeSpace())
		if e.leave() {
			errs = append(errs, e.env.leaveSpace(e.cfg.netns()))
		}
	}
	if p.kept != nil {
		errs = append(errs, p.kept.remove())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.env.publish(p.cfg.Name, nil)
	return nil
}

// leave says once that the end's namespace is ours.
func (e *End) leave() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	owned := e.owned
	e.owned = false
	return owned
}
