package bench_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/fake"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/netns"
)

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > part*want {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, 100*part)
	}
}

// Every frame of a bare veth is counted once, at any size and from any number of generators.
func TestBareVethLosesNothing(t *testing.T) {
	modes(t, func(t *testing.T, mode load.Mode) {
		for _, c := range []struct {
			name string
			cfg  load.Config
			n    int
			mean float64 // bytes of a frame
		}{
			{"smallest", load.Config{Size: 60}, 1, 60},
			{"largest", load.Config{Size: 3392}, 1, 3392},
			{"imix", load.Config{IMIX: true, Flows: 47}, 1, (28*60 + 16*566 + 4*1514) / 48.},
			{"ipv6", load.Config{Size: 80, IP6: 100}, 1, 80},
			{"a third of ipv6", load.Config{Size: 100, IP6: 33, Flows: 100}, 1, 100},
			{"imix, all ipv6", load.Config{IMIX: true, IP6: 100, Flows: 47}, 1, (28*80 + 16*566 + 4*1514) / 48.},
			{"two generators", load.Config{Size: 128, Flows: 33}, 2, 128},
		} {
			t.Run(c.name, func(t *testing.T) {
				c.cfg.Mode, c.cfg.Rate, c.cfg.CPUs = mode, 48_000, someCPUs(t, c.n)
				r := complete(t, newTrial(t, bare(t), c.cfg), 100*time.Millisecond, 4800)
				if r.Offered != 4800 || r.Delivered != r.Offered || r.Lost+r.Reordered+r.Duplicated != 0 {
					t.Errorf("got %+v, want 4800 frames offered and delivered", r)
				}
				within(t, "bytes", float64(r.Bytes), c.mean*4800, 1e-2)
				// Frames may be late, when the machine is busy.
				late := float64(r.Latency.Max()) / float64(100*time.Millisecond)
				if r.PPS > 48_000*1.01 || r.PPS < 48_000*0.99/(1+late) {
					t.Errorf("rate: %g, want 48000 within 1 %% and %g", r.PPS, 1+late)
				}
				within(t, "intended rate", r.IntendedPPS, 48_000, 1e-6)
				within(t, "bit rate", r.Gbps, r.PPS*c.mean*8/1e9, 1e-3)
			})
		}
	})
}

// Frames that the kernel's own can't be go by a packet socket, and are counted in the same way.
func TestLongFrames(t *testing.T) {
	tp, err := topo.Bare(9000)
	need(t, err)
	closeAtEnd(t, tp)
	for _, rate := range []float64{10_000, 0} {
		tr := newTrial(t, tp, load.Config{Mode: load.Skb, Size: 9014, Flows: 17, IP6: 50, CPUs: someCPUs(t, 1), Rate: rate})
		r, err := tr.Run(t.Context(), 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if r.Offered == 0 || rate > 0 && r.Offered != 1000 || r.Delivered != r.Offered || r.Reordered+r.Duplicated != 0 || r.Bytes != 9014*r.Delivered {
			t.Errorf("rate %g: %+v", rate, r)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ns, ifindex := tp.Load()
	if _, err := load.New(load.Config{NetNS: ns, Ifindex: ifindex, Mode: load.Frame, Size: 9014, Flows: 1, CPUs: []int{0}}); err == nil {
		t.Error("made XDP frames of 9014 bytes")
	}
}

// With several ways, each carries its flows, and all are counted.
func TestWaysShareTheFlows(t *testing.T) {
	modes(t, func(t *testing.T, mode load.Mode) {
		w, err := topo.Side(3, 1500)
		need(t, err)
		closeAtEnd(t, w)
		// 12 flows, in turn: with two generators each begins in the middle.
		r := complete(t, newTrial(t, w, load.Config{Mode: mode, Rate: 12_000, Flows: 12, CPUs: someCPUs(t, 2)}), 100*time.Millisecond, 1200)
		if r.Offered != 1200 || r.Delivered != 1200 || r.Lost+r.Reordered+r.Duplicated != 0 {
			t.Fatalf("got %+v", r)
		}
		loads, _ := w.Also()
		ns, first := w.Load()
		for _, index := range append(loads, first) {
			if n := sent(t, ns, index); n < 400 {
				t.Errorf("interface %d sent %d frames, want 400 at least", index, n)
			}
		}
	})
}

// sent is what an interface's statistics say.
func sent(t *testing.T, ns, index int) (n uint64) {
	t.Helper()
	err := netns.Do(ns, func() error {
		l, err := netlink.LinkByIndex(index)
		if err == nil {
			n = l.Attrs().Statistics.TxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestShortLoadIsInvalid(t *testing.T) {
	tp := bare(t)
	r := run(t, newTrial(t, tp, load.Config{Rate: 100e6}), 100*time.Millisecond)
	if !strings.Contains(r.Invalid, "fell short") {
		t.Errorf("%.0f of %.0f frames a second offered, invalid %q", r.OfferedPPS, r.IntendedPPS, r.Invalid)
	}
	r = run(t, newTrial(t, bare(t), load.Config{}), 100*time.Millisecond)
	if r.Invalid != "" || r.IntendedPPS != 0 || r.Offered == 0 {
		t.Errorf("at maximum rate: %+v", r)
	}
}

// Frames that a forwarder still has when the next trial begins aren't counted there.
func TestLateFramesAreNotOfTheNextTrial(t *testing.T) {
	f := newFaulty(t, load.Skb, fake.Config{})
	tr := newTrial(t, f, load.Config{Mode: load.Skb, Rate: 10_000})
	f.Stop(time.Hour)
	if r := complete(t, tr, 100*time.Millisecond, 1000); r.Delivered != 0 || r.Lost != 1000 {
		t.Fatalf("stopped forwarder delivered: %+v", r)
	}
	tr.Quiet = patient
	tr.Gen.OnStart = func() { f.Stop(0) }
	for range attempts {
		r := run(t, tr, 100*time.Millisecond)
		if r.Reordered+r.Duplicated != 0 || r.Delivered > r.Offered {
			t.Fatalf("next trial: %+v", r)
		}
		if r.Delivered == 1000 {
			return
		}
	}
	t.Error("no trial behind a stop was complete")
}

func TestTrialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	tr := newTrial(t, bare(t), load.Config{Rate: 10_000})
	timer := time.AfterFunc(300*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	r, err := tr.Run(ctx, time.Minute)
	if err == nil || r.Offered == 0 || r.Offered > 200_000 {
		t.Errorf("%d offered, error %v", r.Offered, err)
	}
}

func TestCostOfNothingIsNothing(t *testing.T) {
	tp := bare(t)
	cfg := load.Config{CPUs: someCPUs(t, 1), Flows: 16, Size: 60}
	cost, err := bench.Calibrate(t.Context(), tp, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if cost.PPS <= 0 || cost.PerSpin <= 0 || math.IsNaN(cost.PerFrame) {
		t.Errorf("cost %+v", cost)
	}
	tr := newTrial(t, tp, cfg)
	r := run(t, tr, 50*time.Millisecond)
	if r.CPU != 0 || !math.IsNaN(r.CPUPerFrame) {
		t.Errorf("unasked: %s, %g ns a frame", r.CPU, r.CPUPerFrame)
	}
	tr.CPUs, tr.Own = cfg.CPUs, cost
	r = run(t, tr, 500*time.Millisecond)
	own := cost.PerFrame*float64(r.Offered) + cost.PerSpin*float64(r.Spins)
	if want := (float64(r.CPU) - own) / float64(r.Delivered); math.Abs(r.CPUPerFrame-want) > 1e-6*math.Abs(want) {
		t.Errorf("%g ns a frame, want %g", r.CPUPerFrame, want)
	}
	t.Logf("%+v; a trial of the same: %.0f ns a frame", cost, r.CPUPerFrame)
}

// What was attached is detached: another trial finds everything as the first did.
func TestTrialsFollowEachOther(t *testing.T) {
	modes(t, func(t *testing.T, mode load.Mode) {
		tp := bare(t)
		for range 2 {
			tr := newTrial(t, tp, load.Config{Mode: mode, Rate: 10_000})
			if r := complete(t, tr, 50*time.Millisecond, 500); r.Delivered != 500 {
				t.Errorf("%+v", r)
			}
			if err := errors.Join(tr.Close(), tr.Close()); err != nil {
				t.Error(err)
			}
		}
		ns, ifindex := tp.Sink()
		attached(t, ns, ifindex)
		ns, ifindex = tp.Load()
		attached(t, ns, ifindex)
		attached(t, ns, 1)
	})
}

// attached fails if a program is.
func attached(t *testing.T, ns, ifindex int) {
	t.Helper()
	err := netns.Do(ns, func() error {
		l, err := netlink.LinkByIndex(ifindex)
		if err != nil {
			return err
		}
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			t.Errorf("%s still has an XDP program", l.Attrs().Name)
		}
		for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			q, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: hook})
			if err != nil {
				return err
			}
			if len(q.Programs) != 0 {
				t.Errorf("%s still has %d tcx programs", l.Attrs().Name, len(q.Programs))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
