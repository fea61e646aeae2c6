package control

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/kern/skb"
	"github.com/epair-net/epair/fanout/kern/xdp"
	"github.com/epair-net/epair/internal/netns"
)

// kernel is what all crossings share: the pool's policy in maps. They are made with
// the first crossing, as they need CAP_BPF.
type kernel struct {
	mu        sync.Mutex
	policy    *kern.Policy
	crossings map[kern.Crossing]struct{}
}

// open returns the policy. The caller holds d.policy, so that it's the one of now.
func (k *kernel) open(s *fanout.Steering, cpus []int) (*kern.Policy, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.policy != nil {
		return k.policy, nil
	}
	p, err := kern.NewPolicy(s.Hasher(), s.Table(), cpus)
	if err == nil {
		k.policy, k.crossings = p, map[kern.Crossing]struct{}{}
	}
	return p, err
}

func (k *kernel) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.policy == nil {
		return nil
	}
	return k.policy.Close()
}

func (k *kernel) add(c kern.Crossing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crossings[c] = struct{}{}
}

func (k *kernel) remove(c kern.Crossing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.crossings, c)
}

// kernelCarrier is a kernel datapath.
type kernelCarrier struct {
	kernel   *kernel
	crossing kern.Crossing
}

// carryKernel makes the crossing of p's datapath. All or nothing.
func (d *Daemon) carryKernel(p *pair, mode string) (_ carrier, err error) {
	policy, err := d.kernel.open(d.steer, d.cpus)
	if err != nil {
		return nil, fmt.Errorf("add pair %s: %w", p.cfg.Name, err)
	}
	c := kern.Config{Name: p.cfg.Name, Mode: kern.Mode(mode), Policy: policy, Keep: p.keep()}
	for _, x := range []struct {
		*epair.End
		to *kern.End
	}{{p.ends.A, &c.A}, {p.ends.B, &c.B}} {
		done, e := kernelEnd(x.End, x.to, p.cfg.Datapath)
		if e != nil {
			return nil, fmt.Errorf("add pair %s: %w", p.cfg.Name, e)
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	k := &kernelCarrier{kernel: &d.kernel}
	switch p.cfg.Datapath {
	case "direct":
		k.crossing, err = skb.NewDirect(c)
	case "tc":
		k.crossing, err = skb.NewTC(c)
	default:
		k.crossing, err = xdp.New(c)
	}
	if err != nil {
		return nil, fmt.Errorf("add pair %s: datapath %s: %w", p.cfg.Name, p.cfg.Datapath, err)
	}
	d.kernel.add(k.crossing)
	return k, nil
}

// kernelEnd describes e to a crossing, which uses the namespaces until done is called, and
// turns off on it what the datapath can't carry.
func kernelEnd(e *epair.End, to *kern.End, datapath string) (done func() error, err error) {
	if e.Ifindex() != 0 {
		to.Outer = kern.Device{NetNS: e.NetnsFD(), Ifindex: e.Ifindex()}
		err := netns.Do(e.NetnsFD(), func() error {
			l, err := netlink.LinkByIndex(e.Ifindex())
			if err == nil {
				to.Outer.Name = l.Attrs().Name
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look up the device of %s: %w", e.Name(), err)
		}
	}
	if e.Kind() == epair.Dev {
		return func() error { return nil }, nil
	}
	carry := epair.CarryAll
	if datapath == "xdp" {
		carry = epair.CarryNothing
	}
	if err := e.SetOffloads(carry); err != nil {
		return nil, err
	}
	ns, err := e.Space()
	if err != nil {
		return nil, err
	}
	to.Owned = true
	to.Inner = kern.Device{NetNS: ns.FD(), Ifindex: e.InnerIndex(), Name: e.Name()}
	return ns.Close, nil
}

func (c *kernelCarrier) close() error {
	c.kernel.remove(c.crossing)
	return c.crossing.Close()
}

func (c *kernelCarrier) setMode(mode string) (Change, error) {
	ch, err := c.crossing.SetMode(kern.Mode(mode))
	return Change{Dropped: ch.Blocked, TookMicros: float64(ch.Micros)}, err
}

// empty stops the workers and threads of the kernel. What is in a backlog or in the ring of a device comes out by itself.
func (c *kernelCarrier) empty(cfg *epair.PairConfig) (uint64, error) {
	if cfg.Datapath != "xdp" && cfg.Mode != "poller" {
		return 0, nil
	}
	ch, err := c.crossing.SetMode(kern.Inline)
	return ch.Blocked, err
}

func (c *kernelCarrier) answer(a *Pair) {
	ab, ba, err := c.crossing.Ledgers()
	if err != nil {
		a.Trouble = err.Error()
	}
	a.AB, a.BA = answerCrossing(&ab), answerCrossing(&ba)
	a.A.Port, a.B.Port = "kernel", "kernel"
	a.Workers = []int{}
	a.Notes = c.crossing.Notes()
	if a.Mode == "pool" {
		a.Steer = "kernel"
	}
	for _, t := range c.crossing.Threads() {
		a.Threads = append(a.Threads, Thread(t))
	}
}

func answerCrossing(l *kern.Ledger) Direction {
	d := Direction{
		Rx: l.Rx, RxBytes: l.RxBytes, Tx: l.Tx, TxBytes: l.TxBytes, Queued: l.Queued,
		Drops: map[string]uint64{}, Imbalance: l.Imbalance(), Unsteered: l.Unsteered,
	}
	for reason, n := range l.Drops {
		if n > 0 {
			d.Drops[reason] = n
		}
	}
	d.PerCPU = l.PerCPU
	return d
}

// ErrRefused says that the kernel, these privileges or a pair's ends can't have a cell. The
// error that wraps it names the reason and what to do.
var ErrRefused = kern.ErrRefused
