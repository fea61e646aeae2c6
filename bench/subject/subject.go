// Package subject makes what a bench measures, be it a cell of epair's matrix or something to compare with.
//
//	set-up a   load ns [load]──link──[sink] sink ns
//	set-up b   load ns [load]──link──[in] jail (routes) [out]──link──[sink] sink ns
//
// Each link is what is measured. The namespaces have no name and end with the process.
package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// ErrAbsent says that a subject can't be made here; the error that wraps it says why.
var ErrAbsent = errors.New("not available")

// Link is two interfaces that a subject makes and joins.
type Link struct {
	A, B         *netns.NS // borrowed
	NameA, NameB string
}

// Options says how a subject is made.
type Options struct {
	Setup string    // a or b
	Mode  load.Mode // how frames will go in
	CPUs  []int     // that forward, where the subject lets choose
	MTU   int       // 0: 1500
	// Sockets says that sockets will send: frames must arrive with their checksums right.
	Sockets bool
	IP6     bool // a router must route IPv6, too
}

// Made is what Subject.Join made.
type Made struct {
	Closer   io.Closer
	Commands [][]string // of the processes that were started
	Why      []string   // what was chosen, and what it costs
}

// Subject is one thing to measure.
type Subject struct {
	Name     string
	Baseline bool
	Modes    []load.Mode // that it is measured in unless the user chooses
	Path     string      // hops from load to sink
	// OnLoad says that frames are forwarded by the CPU that sends them.
	OnLoad bool
	// Join makes the links' interfaces, joins each two, and returns when frames may be sent. All or nothing.
	Join func(ctx context.Context, o Options, links []Link) (Made, error)
}

// Setup is a subject at work. It is a bench.Topology, and routes in set-up b.
type Setup struct {
	Made
	load, sink topo.End
	owned      []io.Closer
}

// Routed is a Setup whose frames must carry the router's address.
type Routed struct {
	*Setup
	jail topo.End
	mac  wire.MAC
}

// Gateway is the address of the router's near end.
func (r *Routed) Gateway() wire.MAC { return r.mac }

// Load is where frames go in.
func (s *Setup) Load() (ns, ifindex int) { return s.load.NS.FD(), s.load.Index }

// Sink is where they should come out.
func (s *Setup) Sink() (ns, ifindex int) { return s.sink.NS.FD(), s.sink.Index }

// Close removes everything. It is idempotent.
func (s *Setup) Close() error {
	var errs []error
	for i := len(s.owned) - 1; i >= 0; i-- {
		errs = append(errs, s.owned[i].Close())
	}
	s.owned = nil
	return errors.Join(errs...)
}

// Topology is what New returns: a *Setup or a *Routed.
type Topology interface {
	Load() (ns, ifindex int)
	Sink() (ns, ifindex int)
	Close() error
	Info() Made
	Addresses() (load, sink netip.Addr, err error)
}

// Info says what was made.
func (s *Setup) Info() Made { return s.Made }

// New makes a subject in namespaces of its own.
func (s *Subject) New(ctx context.Context, o Options) (Topology, error) {
	if o.MTU == 0 {
		o.MTU = 1500
	}
	t := &Setup{}
	var top Topology = t
	var err error
	switch o.Setup {
	case "a":
		err = t.direct(ctx, s, o)
	case "b":
		r := &Routed{Setup: t}
		top, err = r, r.routed(ctx, s, o)
	default:
		err = fmt.Errorf("set-up %q: unknown (use a or b)", o.Setup)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return top, nil
}

// spaces makes n namespaces.
func (s *Setup) spaces(n int) ([]*netns.NS, error) {
	var list []*netns.NS
	for range n {
		ns, err := topo.Space()
		if err != nil {
			return nil, err
		}
		s.owned = append(s.owned, ns)
		list = append(list, ns)
	}
	return list, nil
}

func (s *Setup) join(ctx context.Context, sub *Subject, o Options, links []Link) error {
	m, err := sub.Join(ctx, o, links)
	if err != nil {
		return err
	}
	s.Made = m
	s.owned = append(s.owned, m.Closer)
	for i, l := range links {
		a, err := ready(l.A, l.NameA)
		if err != nil {
			return err
		}
		b, err := ready(l.B, l.NameB)
		if err != nil {
			return err
		}
		if i == 0 {
			s.load = a
		}
		s.sink = b
	}
	return nil
}

func ready(ns *netns.NS, name string) (topo.End, error) {
	e, err := topo.Up(ns, name)
	if err == nil {
		err = topo.Await(e)
	}
	return e, err
}

func (s *Setup) direct(ctx context.Context, sub *Subject, o Options) error {
	ns, err := s.spaces(2)
	if err != nil {
		return err
	}
	return s.join(ctx, sub, o, []Link{{ns[0], ns[1], topo.LoadName, topo.SinkName}})
}

func (r *Routed) routed(ctx context.Context, sub *Subject, o Options) error {
	ns, err := r.spaces(3)
	if err != nil {
		return err
	}
	err = r.join(ctx, sub, o, []Link{
		{ns[0], ns[1], topo.LoadName, topo.InName},
		{ns[1], ns[2], topo.OutName, topo.SinkName},
	})
	if err == nil {
		r.jail = topo.End{NS: ns[1]}
		r.mac, err = route(ns[1], r.load, r.sink)
	}
	if err == nil && o.IP6 {
		err = route6(ns[1], r.load, r.sink)
	}
	return err
}
