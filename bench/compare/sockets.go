package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/machine"
	"github.com/epair-net/epair/bench/report"
)

// hosts are both ends as sockets see them. Senders run on the load's CPUs and receivers on the forwarders', as on a machine
// whose cores all have something to do.
func (v *Visit) hosts() (a, b bench.Host, err error) {
	load, sink, err := v.Topology.Addresses()
	if err != nil {
		return a, b, err
	}
	ns, _ := v.Topology.Load()
	a = bench.Host{NS: ns, Addr: load, CPUs: v.run.Place.Load}
	ns, _ = v.Topology.Sink()
	return a, bench.Host{NS: ns, Addr: sink, CPUs: v.run.Place.Forward}, nil
}

// watched runs fn and says what else the machine did, and how many CPUs weren't idle.
func (v *Visit) watched(fn func() error) (n machine.Noise, cpus float64, err error) {
	w, err := machine.NewWatch()
	if err != nil {
		return n, 0, err
	}
	before, err := bench.BusyTime(v.run.Place.Used)
	if err != nil {
		return n, 0, err
	}
	start := time.Now()
	if err := fn(); err != nil {
		return n, 0, err
	}
	after, err := bench.BusyTime(v.run.Place.Used)
	if err != nil {
		return n, 0, err
	}
	cpus = (after - before).Seconds() / time.Since(start).Seconds()
	n, err = w.Noise()
	return n, cpus, err
}

// TCP measures bulk streams.
func TCP(streams ...int) Measure {
	m := Measure{Sockets: true, Do: func(ctx context.Context, v *Visit) error {
		a, b, err := v.hosts()
		if err != nil {
			return err
		}
		for k, n := range streams {
			var t bench.Throughput
			noise, cpus, err := v.watched(func() (err error) {
				t, err = bench.TCPStreams(ctx, a, b, n, v.run.Time)
				return err
			})
			if err != nil {
				return err
			}
			v.Add(k, report.Round{Gbps: t.Gbps(), Noise: &noise, Values: map[string]float64{"CPUs busy": cpus}}, nil)
		}
		return nil
	}}
	for _, n := range streams {
		m.Variants = append(m.Variants, Variant{Name: "TCP, " + count(n, "stream")})
	}
	return m
}

// RR measures requests and answers of the same size: sessions × sizes.
func RR(sessions, sizes []int) Measure {
	m := Measure{Sockets: true, Do: func(ctx context.Context, v *Visit) error {
		a, b, err := v.hosts()
		if err != nil {
			return err
		}
		k := 0
		for _, n := range sessions {
			for _, size := range sizes {
				if err := v.rr(ctx, a, b, n, size, k); err != nil {
					return err
				}
				k++
			}
		}
		return nil
	}}
	for _, n := range sessions {
		for _, size := range sizes {
			m.Variants = append(m.Variants, Variant{Name: fmt.Sprintf("%s, requests of %s", count(n, "session"), bytes(size))})
		}
	}
	return m
}

// bytes names a size.
func bytes(n int) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (v *Visit) rr(ctx context.Context, a, b bench.Host, sessions, size, k int) error {
	var t bench.RTT
	noise, cpus, err := v.watched(func() (err error) {
		t, err = bench.RRSessions(ctx, a, b, sessions, size, v.run.Time)
		return err
	})
	if err != nil {
		return err
	}
	h := hdrhistogram.New(1, int64(5*time.Minute), 3)
	h.Merge(t.Histogram())
	v.Add(k, report.Round{
		Noise: &noise, Latency: report.LatencyOf(h),
		Values: map[string]float64{report.Requests: t.Rate(), "CPUs busy": cpus},
	}, h)
	return nil
}
