package kern

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/rss"
)

// A mark has 48 bits, its slot leads RPS to the right CPU whatever follows it, and a backlog of usual
// length is shorter than what the number can tell apart.
func TestLayout(t *testing.T) {
	for _, buckets := range []int{1, 128, 4096} {
		for cpus := 1; cpus <= maxFenceCPUs; cpus++ {
			rps := make([]int, 0, cpus)
			for c := range cpus {
				if c%3 != 1 || cpus < 3 { // holes, as isolated CPUs leave
					rps = append(rps, c)
				}
			}
			l, err := newLayout(buckets, cpus, rps)
			if err != nil {
				t.Fatal(err)
			}
			if sum := l.TopBits + l.BucketBits + l.CPUBits + l.SeqBits + markBits; sum != slotShift {
				t.Fatalf("%d buckets, %d cpus: %d bits: %+v", buckets, cpus, sum, l)
			}
			f := Fence{layout: l}
			if f.InFlight() < 4096 {
				t.Errorf("%d buckets, %d cpus: only %d frames in flight", buckets, cpus, f.InFlight())
			}
			rest := 32 - l.TopBits
			for place, cpu := range rps {
				for _, low := range []uint32{0, 1<<rest - 1, rand.Uint32N(1 << rest)} {
					hash := l.Top[cpu]<<rest | low
					if got := uint64(hash) * uint64(len(rps)) >> 32; got != uint64(place) {
						t.Fatalf("%d cpus: cpu %d, place %d: RPS goes to place %d (hash %08x)", cpus, cpu, place, got, hash)
					}
				}
			}
		}
	}
	if _, err := newLayout(128, maxFenceCPUs+1, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("too many CPUs: %v", err)
	}
}

// What was lost is told from what is on its way by Settle.
func TestSettle(t *testing.T) {
	f, p := newFence(t)
	const key, cpu = 5, 0 // bucket 5 of direction 0
	moving := func(want int) {
		t.Helper()
		if n, err := f.Moving(p, false); err != nil || n != want {
			t.Errorf("%d buckets move (%v), want %d", n, err, want)
		}
	}
	moving(0) // nothing is in flight anywhere
	f.in.at(key).Store(7)
	moving(1)
	if err := f.Settle(func() error { f.in.at(key).Store(9); return nil }); err != nil {
		t.Fatal(err)
	}
	if out := f.out.at(key*int(f.layout.Stride) + cpu).Load(); out != 7 {
		t.Errorf("out is %d: frames that were counted meanwhile aren't lost", out)
	}
	moving(1)
	f.out.at(key*int(f.layout.Stride) + cpu).Store(9)
	moving(0)
	f.in.at(key).Store(10)
	f.word.at(key * bucketWords).Store(uint64(p.slot(key)) << slotShift)
	moving(0) // in flight, but where it should be
	if n, err := f.Moving(p, true); err != nil || n != 1 {
		t.Errorf("towards local: %d %v", n, err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := f.Moving(p, false); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func newFence(t *testing.T) (*Fence, *Policy) {
	t.Helper()
	h, err := rss.New(rss.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := rss.ParseTable("", 128, 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPolicy(h, table, []int{0})
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	f, err := NewFence(128, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, p
}

// Counters add up over CPUs, and know their reasons by name.
func TestCounters(t *testing.T) {
	newFence(t) // skips without the privilege
	c, err := NewCounters()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]counters, n)
	for i := range all {
		all[i] = counters{Rx: 10, Tx: uint64(i) + 1, Peer: 2}
		all[i].Drops[0] = 3
	}
	if err := c.m.Put(uint32(1), all); err != nil {
		t.Fatal(err)
	}
	s, err := c.Read(1)
	if err != nil {
		t.Fatal(err)
	}
	cpus := uint64(n)
	if s.Rx != 10*cpus || s.Tx != cpus*(cpus+1)/2 || s.Peer != 2*cpus || s.PerCPU[n-1] != cpus || s.Drops["fence"] != 3*cpus || len(s.Drops) != 1 {
		t.Errorf("%+v", s)
	}
	if s, err := c.Read(0); err != nil || s.Rx != 0 || len(s.Drops) != 0 {
		t.Errorf("the other direction: %+v %v", s, err)
	}
}
