// Package cell makes the cells of epair's matrix for a bench: a daemon in this process whose pairs are the links that are
// measured.
package cell

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

// carrier is one way of epair's to carry frames.
type carrier struct {
	name           string
	datapath, port string
	kind           string // of the ends
	modes          []load.Mode
	hops           string
}

// carriers returns the rows of the matrix. Those that take what XDP redirects are loaded with bare frames, the others as a
// socket would.
func carriers() []carrier {
	frame, skb := []load.Mode{load.Frame}, []load.Mode{load.Skb}
	return []carrier{
		{"user-packet", "user", "packet", epair.Veth, skb, "veth → AF_PACKET ring → worker → AF_PACKET ring → veth"},
		{"user-tap", "user", "packet", epair.TAP, frame, "tap → worker → tap"},
		{"user-xdp", "user", "xdp", epair.Veth, frame, "veth → AF_XDP → worker → AF_XDP → veth"},
		{"direct", "direct", "packet", epair.Veth, skb, "veth pair"},
		{"tc", "tc", "packet", epair.Veth, skb, "veth → tcx → veth"},
		{"xdp", "xdp", "packet", epair.Veth, frame, "veth → XDP → veth"},
	}
}

// All returns every cell, whether this machine can do it or not.
func All() (all []subject.Subject) {
	for _, c := range carriers() {
		for _, mode := range []string{"inline", "pool", "poller"} {
			all = append(all, subject.Subject{
				Name: c.name + "/" + mode, Modes: c.modes, Path: c.hops,
				OnLoad: c.datapath != "user" && mode == "inline",
				Join: func(ctx context.Context, o subject.Options, links []subject.Link) (subject.Made, error) {
					return c.join(ctx, mode, o, links)
				},
			})
		}
	}
	return all
}

// Daemon is the epair at work behind a cell.
type Daemon struct {
	*control.Daemon
	First epair.PairConfig // of its first pair, as asked for
}

// join starts a daemon with one pair for each link, all on one pool.
func (c carrier) join(ctx context.Context, mode string, o subject.Options, links []subject.Link) (m subject.Made, err error) {
	if c.name == "user-packet" && o.Mode == load.Frame {
		return m, fmt.Errorf("load %s: %w: XDP frames reach a veth only through a NAPI, which a packet port has none of (use --load skb)", o.Mode, subject.ErrAbsent)
	}
	cfg := &epair.Config{Version: epair.Version, Pool: epair.PoolConfig{CPUs: cpus.Format(o.CPUs)}}
	for i, l := range links {
		p := epair.PairConfig{
			Name: fmt.Sprintf("bench%d", i), A: c.end(l.A, l.NameA), B: c.end(l.B, l.NameB),
			Datapath: c.datapath, Mode: mode, Port: c.port, MTU: o.MTU,
		}
		cfg.Pairs = append(cfg.Pairs, p.WithDefaults())
	}
	allowed, err := cpus.Allowed()
	if err != nil {
		return m, err
	}
	if err := cfg.Check(allowed); err != nil {
		return m, err
	}
	d, err := control.Start(ctx, cfg)
	if err != nil {
		return m, err
	}
	m.Closer = Daemon{d, cfg.Pairs[0]}
	for _, p := range d.Pairs() {
		m.Why = append(m.Why, p.Why...)
	}
	return m, nil
}

// end is an interface in a namespace without a name, which this process holds open.
func (c carrier) end(ns *netns.NS, name string) epair.EndConfig {
	return epair.EndConfig{Kind: c.kind, Name: name, Netns: path.Join("/proc", fmt.Sprint(os.Getpid()), "fd", fmt.Sprint(ns.FD()))}
}
