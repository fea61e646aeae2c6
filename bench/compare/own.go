package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/report"
	"github.com/epair-net/epair/bench/sink"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// way is how a load is used; each costs something else.
type way struct {
	mode load.Mode
	rate float64
}

// topology is what frames go in at and come out of.
type topology interface {
	Load() (ns, ifindex int)
	Sink() (ns, ifindex int)
}

func sinkName(m load.Mode) string {
	if m == load.Frame {
		return "xdp"
	}
	return "tcx"
}

// newTrial makes load and sink, which need not work in the same mode: epair's own XDP programs may sit where
// a sink's would.
func newTrial(top topology, cfg load.Config, at load.Mode) (t *bench.Trial, err error) {
	if cfg.SrcMAC, err = address(top.Load()); err != nil {
		return nil, err
	}
	if g, ok := top.(bench.Gateway); ok {
		cfg.DstMAC = g.Gateway()
	} else if cfg.DstMAC, err = address(top.Sink()); err != nil {
		return nil, err
	}
	cfg.NetNS, cfg.Ifindex = top.Load()
	ns, ifindex := top.Sink()
	t = &bench.Trial{}
	if t.Sink, err = sink.New(sink.Config{NetNS: ns, Ifindex: ifindex, Mode: at, Flows: cfg.Flows}); err != nil {
		return nil, err
	}
	if t.Gen, err = load.New(cfg); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func address(ns, ifindex int) (mac wire.MAC, err error) {
	err = netns.Do(ns, func() error {
		l, err := netlink.LinkByIndex(ifindex)
		if err == nil {
			copy(mac[:], l.Attrs().HardwareAddr)
		}
		return err
	})
	if err != nil {
		return mac, fmt.Errorf("read address of interface %d: %w", ifindex, err)
	}
	return mac, nil
}

// napi makes the sink's end receive by NAPI, without which redirected frames vanish.
func napi(ns, _ int) error {
	return netns.Do(ns, func() error {
		_, err := ethtool.SetFeatures(topo.SinkName, map[string]bool{"rx-gro": true})
		return err
	})
}

// How the load is measured by itself. What disturbs it makes it dearer, so the least of some tries is right.
const (
	calibrations    = 3
	calibrationTime = time.Second // at most: ticks of 10 ms are a percent of it
	idleRate        = 100         // next to nothing
)

// calibrate measures what the load costs by itself, over one veth, in every way that is used.
func (r *run) calibrate(ctx context.Context) error {
	if r.Measure.Sockets {
		return nil
	}
	seen := map[load.Mode]bool{}
	for _, j := range r.jobs {
		if seen[j.mode] {
			continue
		}
		seen[j.mode] = true
		r.progress(0, "the load by itself ("+j.mode.String()+")")
		t, err := topo.Bare(r.mtu())
		if err != nil {
			return err
		}
		if err = errors.Join(r.calibrateMode(ctx, t, j.mode), t.Close()); err != nil {
			return fmt.Errorf("measure the load by itself: %w", err)
		}
	}
	return nil
}

func (r *run) calibrateMode(ctx context.Context, top *topo.Topo, m load.Mode) (err error) {
	if m == load.Frame && r.Sink == load.Skb {
		if err := napi(top.Sink()); err != nil {
			return err
		}
	}
	t, err := newTrial(top, r.load(m), r.Sink)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	t.CPUs = r.Place.Load
	d := min(calibrationTime, r.Time)
	idle, err := t.Pace(d)(ctx, idleRate*float64(len(t.CPUs)))
	if err != nil {
		return err
	}
	if idle.Spins == 0 {
		return errors.New("the generator never waited")
	}
	spin := float64(idle.CPU) / float64(idle.Spins)
	for _, rate := range r.rates() {
		c, err := cheapest(ctx, t, rate, spin, d)
		if err != nil {
			return err
		}
		r.own[way{m, rate}] = c
		if rate == 0 {
			r.file.Settings.LoadLimit[m.String()] = report.LoadCost{PPS: c.PPS, FrameNs: c.PerFrame, SpinNs: c.PerSpin}
		}
	}
	return nil
}

// rates are those of all variants, the greatest possible first and in any case.
func (r *run) rates() []float64 {
	list := []float64{0}
	for _, v := range r.Measure.Variants {
		if v.Rate > 0 {
			list = append(list, v.Rate)
		}
	}
	return list
}

func cheapest(ctx context.Context, t *bench.Trial, rate, spin float64, d time.Duration) (best bench.LoadCost, err error) {
	best = bench.LoadCost{Rate: rate, PerSpin: spin}
	for i := range calibrations {
		x, err := t.Pace(d)(ctx, rate)
		if err != nil {
			return best, err
		}
		if x.Offered == 0 {
			return best, errors.New("no frame was sent")
		}
		price := (float64(x.CPU) - spin*float64(x.Spins)) / float64(x.Offered)
		if i == 0 || price < best.PerFrame {
			best.PerFrame = price
		}
		best.PPS = max(best.PPS, x.PPS)
	}
	return best, nil
}
