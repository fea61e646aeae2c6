package bench_test

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/fake"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

// need skips where namespaces aren't allowed, or fails where they must be.
func need(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF)")
	}
	t.Fatal(err)
}

// someCPUs returns n CPUs to generate on, or as many as there are.
func someCPUs(t testing.TB, n int) []int {
	t.Helper()
	all, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return all[:min(n, len(all))]
}

func closeAtEnd(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func bare(t testing.TB) *topo.Topo {
	t.Helper()
	tp, err := topo.Bare(3500)
	need(t, err)
	closeAtEnd(t, tp)
	return tp
}

// faulty is a topology with a fake forwarder.
type faulty struct {
	*topo.Topo
	*fake.Forwarder
	out topo.End
}

func (f *faulty) Close() error { return f.Topo.Close() }

func newFaulty(t testing.TB, mode load.Mode, cfg fake.Config) *faulty {
	t.Helper()
	f := &faulty{}
	var err error
	f.Topo, err = topo.Split(mode == load.Frame, 1500, func(in, out topo.End) (io.Closer, error) {
		f.out = out
		cfg.NetNS, cfg.In, cfg.Out = in.NS.FD(), in.Index, out.Index
		f.Forwarder, err = fake.New(cfg)
		return f.Forwarder, err
	})
	need(t, err)
	closeAtEnd(t, f)
	return f
}

// kernelLoss is what the veths themselves lost: on a busy machine their queues can overflow.
func (f *faulty) kernelLoss(t testing.TB) (n uint64) {
	t.Helper()
	ns, load := f.Load()
	for _, e := range []struct{ ns, index int }{{ns, load}, {f.out.NS.FD(), f.out.Index}} {
		err := netns.Do(e.ns, func() error {
			l, err := netlink.LinkByIndex(e.index)
			if err == nil {
				n += l.Attrs().Statistics.TxDropped
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (f *faulty) ledgerNow(t testing.TB) fake.Ledger {
	t.Helper()
	l, err := f.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newTrial(t testing.TB, tp bench.Topology, cfg load.Config) *bench.Trial {
	t.Helper()
	if cfg.Size == 0 {
		cfg.Size = 60
	}
	if cfg.Flows == 0 {
		cfg.Flows = 16
	}
	if cfg.CPUs == nil {
		cfg.CPUs = someCPUs(t, 1)
	}
	tr, err := bench.NewTrial(tp, cfg)
	need(t, err)
	closeAtEnd(t, tr)
	return tr
}

func run(t testing.TB, tr *bench.Trial, d time.Duration) bench.TrialResult {
	t.Helper()
	r, err := tr.Run(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// attempts are made where the machine may be too busy for the load.
const attempts = 20

// complete runs trials until one offered n frames, though some may have been late.
func complete(t testing.TB, tr *bench.Trial, d time.Duration, n uint64) (r bench.TrialResult) {
	t.Helper()
	for range attempts {
		if r = run(t, tr, d); r.Offered >= n {
			return r
		}
	}
	t.Fatalf("%d trials fell short, the last: %d of %d frames, %s", attempts, r.Offered, n, r.Invalid)
	return r
}

// modes runs a test for both.
func modes(t *testing.T, fn func(t *testing.T, mode load.Mode)) {
	for _, m := range []load.Mode{load.Frame, load.Skb} {
		t.Run(m.String(), func(t *testing.T) { fn(t, m) })
	}
}
