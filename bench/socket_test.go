package bench_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/netns"
)

// hosts are the two ends of a veth, with addresses.
func hosts(t *testing.T) (a, b bench.Host) {
	t.Helper()
	tp, err := topo.Bare(1500)
	need(t, err)
	closeAtEnd(t, tp)
	address := func(ns, ifindex int, addr string) bench.Host {
		p := netip.MustParsePrefix(addr)
		err := netns.Do(ns, func() error {
			l, err := netlink.LinkByIndex(ifindex)
			if err != nil {
				return err
			}
			ip, err := netlink.ParseAddr(addr)
			return errors.Join(err, netlink.LinkSetARPOn(l), netlink.AddrAdd(l, ip))
		})
		if err != nil {
			t.Fatal(err)
		}
		return bench.Host{NS: ns, Addr: p.Addr(), CPUs: someCPUs(t, 2)}
	}
	ns, ifindex := tp.Load()
	a = address(ns, ifindex, "10.9.0.1/24")
	ns, ifindex = tp.Sink()
	return a, address(ns, ifindex, "10.9.0.2/24")
}

const short = 100 * time.Millisecond

func TestTCPCountsWhatWasRead(t *testing.T) {
	a, b := hosts(t)
	for _, streams := range []int{1, 5} {
		r, err := bench.TCPStreams(t.Context(), a, b, streams, short)
		if err != nil {
			t.Fatal(err)
		}
		// Streams write in pieces of 256 KB, and end with a whole one.
		if r.Bytes == 0 || r.Bytes%(256<<10) != 0 || r.Elapsed < short || r.Gbps() <= 0 {
			t.Errorf("%d streams: %+v", streams, r)
		}
	}
	if r, err := bench.TCP(t.Context(), a, b, short); err != nil || r.Bytes == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestUDPCountsWhatWasRead(t *testing.T) {
	a, b := hosts(t)
	for _, c := range []struct{ flows, size int }{{1, 18}, {7, 18}, {3, 1400}} {
		r, err := bench.UDPFlows(t.Context(), a, b, c.flows, c.size, short)
		if err != nil {
			t.Fatal(err)
		}
		if r.Frames == 0 || r.Bytes != r.Frames*uint64(c.size) || r.Elapsed != short || r.Kpps() <= 0 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
	if r, err := bench.UDP(t.Context(), a, b, short); err != nil || r.Frames == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// What nobody reads has arrived all the same.
func TestUDPFlow(t *testing.T) {
	a, b := hosts(t)
	b.CPUs = a.CPUs[:1]
	index := 0
	if err := netns.Do(b.NS, func() error {
		l, err := netlink.LinkByName(topo.SinkName)
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, read := range []bool{false, true} {
		f, err := bench.UDPFlow(t.Context(), a, b, index, read, short)
		if err != nil {
			t.Fatal(err)
		}
		if f.Arrived == 0 || f.Arrived > f.Sent || f.Delivered > f.Arrived || (f.Delivered > 0) != read || f.Rate(f.Sent) <= 0 {
			t.Errorf("read %t: %+v", read, f)
		}
	}
}

// In a closed load the sessions' round trips fill the time, never more, and never less but on a machine that is too
// busy to let them begin.
func TestRoundTripsFillTheTime(t *testing.T) {
	a, b := hosts(t)
	for _, c := range []struct{ sessions, size int }{{1, 1}, {16, 1}, {4, 5 << 10}, {2, 1 << 20}} {
		full := false
		for try := 0; try < attempts && !full; try++ {
			r, err := bench.RRSessions(t.Context(), a, b, c.sessions, c.size, 2*short)
			if err != nil {
				t.Fatal(err)
			}
			spent := r.Histogram().Mean() * float64(r.Count())
			all := float64(c.sessions) * float64(r.Count()) / r.Rate() * 1e9
			if spent > all*1.01 || r.Count() < int64(c.sessions) {
				t.Errorf("%+v: %d round trips took %g s in %g s", c, r.Count(), spent/1e9, all/1e9)
			}
			if r.Percentile(50) > r.Percentile(99) || r.Percentile(50) <= 0 {
				t.Errorf("%+v: p50 %s, p99 %s", c, r.Percentile(50), r.Percentile(99))
			}
			full = spent > all/2
		}
		if !full {
			t.Errorf("%+v: round trips never took half the time", c)
		}
	}
	if r, err := bench.RR(t.Context(), a, b, short); err != nil || r.Count() == 0 {
		t.Errorf("%d round trips, %v", r.Count(), err)
	}
}

func TestSocketsEndWithTheirContext(t *testing.T) {
	a, b := hosts(t)
	enough := errors.New("enough")
	for name, fn := range map[string]func(context.Context) error{
		"tcp": func(ctx context.Context) error { _, err := bench.TCPStreams(ctx, a, b, 3, time.Hour); return err },
		"udp": func(ctx context.Context) error { _, err := bench.UDPFlows(ctx, a, b, 3, 18, time.Hour); return err },
		"rr": func(ctx context.Context) error {
			_, err := bench.RRSessions(ctx, a, b, 3, 1<<20, time.Hour)
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(short, func() { cancel(enough) })
		if err := fn(ctx); !errors.Is(err, enough) {
			t.Errorf("%s ended with %v", name, err)
		}
		timer.Stop()
		if err := fn(ctx); err == nil {
			t.Errorf("%s began after its context's end", name)
		}
	}
}

func TestSocketsRefuseNonsense(t *testing.T) {
	a, b := hosts(t)
	nowhere := b
	nowhere.Addr = netip.MustParseAddr("10.9.0.3")
	for name, err := range map[string]error{
		"no streams":   second(bench.TCPStreams(t.Context(), a, b, 0, short)),
		"no flows":     second(bench.UDPFlows(t.Context(), a, b, 0, 18, short)),
		"no bytes":     second(bench.UDPFlows(t.Context(), a, b, 1, 0, short)),
		"no sessions":  second(bench.RRSessions(t.Context(), a, b, 0, 1, short)),
		"no exchange":  second(bench.RRSessions(t.Context(), a, b, 1, 0, short)),
		"not its own":  second(bench.TCP(t.Context(), a, nowhere, short)),
		"not there":    second(bench.UDP(t.Context(), a, bench.Host{NS: -1, Addr: b.Addr}, short)),
		"not that cpu": second(bench.TCP(t.Context(), bench.Host{NS: a.NS, Addr: a.Addr, CPUs: []int{1000}}, b, short)),
	} {
		if err == nil {
			t.Errorf("%s: measured", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }
