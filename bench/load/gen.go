package load

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// Gen is a load that can be run again and again. Its methods are for one goroutine, but for
// Close, which waits for a Run to end.
type Gen struct {
	// OnStart is called by Run, if set, when the first frame is about to be due. It must not block.
	OnStart func()

	cfg    Config
	ns     int // own descriptor of the namespace
	cpus   []*generator
	divert link.Link // nil in frame mode
	run    uint16

	mu     sync.Mutex // held by Run and Close
	closed bool
}

// generator is what one CPU runs.
type generator struct {
	cpu     int
	engine  engine
	flows   []genGenFlow
	rate    float64 // frames a second, 0: maximum
	ordinal float64 // its place among the generators, 0 to 1
}

// New loads a generator for each CPU. Nothing is sent yet. The interface is looked for in
// the namespace; in Skb mode a program is attached to the namespace's lo, which is set up.
func New(cfg Config) (g *Gen, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g = &Gen{cfg: cfg, ns: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create load: %w", err), g.Close())
			g = nil
		}
	}()
	if g.ns, err = unix.FcntlInt(uintptr(cfg.NetNS), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return g, fmt.Errorf("keep namespace: %w", err)
	}
	flows := templates(&cfg)
	return g, netns.Do(g.ns, func() error { return g.load(flows) })
}

// load runs in the namespace of the interface: that is where the kernel looks indices up.
func (g *Gen) load(flows []genGenFlow) error {
	for _, index := range g.cfg.interfaces() {
		if _, err := netlink.LinkByIndex(index); err != nil {
			return fmt.Errorf("find interface %d: %w", index, err)
		}
	}
	n := len(g.cfg.CPUs)
	for i, cpu := range g.cfg.CPUs {
		first, end := i*len(flows)/n, (i+1)*len(flows)/n
		c := &generator{cpu: cpu, flows: flows[first:end], rate: g.cfg.Rate / float64(n), ordinal: float64(i) / float64(n)}
		if err := c.load(&g.cfg, first); err != nil {
			return err
		}
		g.cpus = append(g.cpus, c)
	}
	if first, ok := g.cpus[0].engine.(*live); ok && g.cfg.Mode == Skb {
		return g.divertLo(first.objs.Divert)
	}
	return nil
}

// divertLo makes what the generators pass up on lo leave by the interface.
func (g *Gen) divertLo(p *ebpf.Program) error {
	lo, err := netlink.LinkByIndex(1)
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	g.divert, err = link.AttachTCX(link.TCXOptions{Interface: 1, Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("attach to lo: %w", err)
	}
	return nil
}

func (c *generator) load(cfg *Config, first int) (err error) {
	if cfg.Size > wire.MaxLive {
		c.engine, err = newLong(cfg, first)
		return err
	}
	l := &live{}
	if err := l.load(cfg, len(c.flows), first); err != nil {
		return errors.Join(err, l.Close())
	}
	c.engine = l
	return nil
}

func (l *live) load(cfg *Config, flows, first int) error {
	sizes := mix(cfg)
	l.input = make([]byte, inputLen(sizes))
	spec, err := loadGen()
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	spec.Maps["templates"].MaxEntries = uint32(flows)
	for _, name := range []string{"devices", "indices"} {
		spec.Maps[name].MaxEntries = uint32(len(cfg.interfaces()))
	}
	for name, value := range map[string]any{
		"flows": uint32(flows), "first_flow": uint32(first), "input_len": uint32(len(l.input)),
		"skb_mode": flag(cfg.Mode == Skb), "targets": uint32(len(cfg.interfaces())),
		"use_imix": flag(cfg.IMIX), "imix_skip": skip(flows), "sizes": sizes,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := spec.LoadAndAssign(&l.objs, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return l.aim(cfg)
}

// aim tells the program its interfaces.
func (l *live) aim(cfg *Config) error {
	targets := l.objs.Devices
	if cfg.Mode == Skb {
		targets = l.objs.Indices
	}
	for i, index := range cfg.interfaces() {
		if err := targets.Put(uint32(i), uint32(index)); err != nil {
			return fmt.Errorf("aim at interface %d: %w", index, err)
		}
	}
	return nil
}

func (c *Config) interfaces() []int { return append([]int{c.Ifindex}, c.Also...) }

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Config returns what the load was made from.
func (g *Gen) Config() Config { return g.cfg }

// SetRate changes the rate of runs to come.
func (g *Gen) SetRate(pps float64) error {
	if err := checkRate(pps); err != nil {
		return fmt.Errorf("set load: %w", err)
	}
	g.cfg.Rate = pps
	for _, c := range g.cpus {
		c.rate = pps / float64(len(g.cpus))
	}
	return nil
}

// Close ends the load. Nothing stays behind. It is idempotent.
func (g *Gen) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	var errs []error
	if g.divert != nil {
		errs = append(errs, g.divert.Close())
	}
	for _, c := range g.cpus {
		errs = append(errs, c.engine.Close())
	}
	if g.ns >= 0 {
		errs = append(errs, unix.Close(g.ns))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close load: %w", err)
	}
	return nil
}
