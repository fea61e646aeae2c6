package rss

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseTable(t *testing.T) {
	for _, c := range []struct {
		spec          string
		size, workers int
		buckets       int
		first         []int // workers of the first buckets
		share         []int // buckets of each worker
	}{
		{"", 0, 3, 128, []int{0, 1, 2, 0}, []int{43, 43, 42}},
		{"equal", 8, 1, 8, []int{0, 0}, []int{8}},
		{"equal 2", 8, 4, 8, []int{0, 1, 0, 1}, []int{4, 4, 0, 0}},
		{"equal", 0, 130, 256, []int{0, 1}, nil},
		{"weight 1 3", 8, 2, 8, []int{0, 0, 1, 1, 1, 1, 1, 1}, []int{2, 6}},
		{"weight 1 1 1", 8, 4, 8, nil, []int{2, 3, 3, 0}},
		{"weight 0 1", 4, 2, 4, []int{1, 1, 1, 1}, []int{0, 4}},
		{"weight 3 0 5", 8, 3, 8, []int{0, 0, 0, 2, 2, 2, 2, 2}, []int{3, 0, 5}},
		{"0,1,0,1", 0, 2, 128, []int{0, 1, 0, 1, 0, 1}, []int{64, 64}},
		{"3", 4, 4, 4, []int{3, 3, 3, 3}, []int{0, 0, 0, 4}},
		{" 0, 1 , 2,0 ", 4, 3, 4, []int{0, 1, 2, 0}, []int{2, 1, 1}},
		{strings.Repeat("0,", 255) + "1", 0, 2, 256, []int{0, 0}, []int{255, 1}},
	} {
		table := mustTable(t, c.spec, c.size, c.workers)
		share := make([]int, c.workers)
		for b := range table.Size() {
			share[table.Worker(b)]++
		}
		if table.Size() != c.buckets || table.Workers() != c.workers || c.share != nil && !slices.Equal(share, c.share) {
			t.Errorf("%.40q: %d buckets, shares %v, want %d and %v", c.spec, table.Size(), share, c.buckets, c.share)
		}
		for b, w := range c.first {
			if table.Worker(b) != w {
				t.Errorf("%.40q: bucket %d is worker %d's, want %d", c.spec, b, table.Worker(b), w)
			}
		}
	}
}

func TestParseTableErrors(t *testing.T) {
	for _, c := range []struct {
		spec          string
		size, workers int
		want          string
	}{
		{"equal", 0, 0, "0 workers (needs 1 to 4096)"},
		{"equal", 100, 4, "size 100 (needs a power of two up to 4096)"},
		{"equal", 8192, 4, "size 8192"},
		{"equal", -1, 4, "size -1"},
		{"equal 5", 0, 4, `"5" isn't a number of workers (there are 4)`},
		{"equal 0", 0, 4, `"0" isn't a number of workers`},
		{"equal two", 0, 4, `"two" isn't a number of workers`},
		{"equal 1 2", 0, 4, "too many words"},
		{"equal", 2, 4, "4 workers, but only 2 buckets"},
		{"weight", 0, 4, "no weight above 0"},
		{"weight 0 0", 0, 4, "no weight above 0"},
		{"weight 1 1 1", 0, 2, "3 weights for 2 workers"},
		{"weight 1 -1", 0, 2, `weight "-1" isn't a number from 0`},
		{"weight 100 100", 0, 2, "weights add up to 200, but there are only 128 buckets"},
		{"0,1,2", 0, 4, "the list has 3 entries (needs a power of two up to 128)"},
		{"0,1,0,1", 2, 4, "the list has 4 entries (needs a power of two up to 2)"},
		{"0,4", 0, 4, "no worker 4 (there are 4, from 0)"},
		{"0,-1", 0, 4, "no worker -1"},
		{"0,,1", 0, 4, `"" isn't a worker`},
		{"fair", 0, 4, `"fair" isn't a worker (use equal, equal N, weight W0 W1 … or a list 0,1,…)`},
		{strings.Repeat("0,", 8191) + "0", 0, 4, "the list has 8192 entries (needs a power of two up to 4096)"},
	} {
		table, err := ParseTable(c.spec, c.size, c.workers)
		if err == nil || table != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: error %v, want one with %q", c.spec, err, c.want)
		}
	}
}

func TestBucket(t *testing.T) {
	table := mustTable(t, "", 0, 4)
	for hash, want := range map[uint32]int{0: 0, 127: 127, 128: 0, 0xffffffff: 127, 0x51ccc178: 120} {
		if got := table.Bucket(hash); got != want {
			t.Errorf("hash %08x is in bucket %d, want %d", hash, got, want)
		}
	}
}

func TestTableString(t *testing.T) {
	want := "    0:      0     1     2     0     1     2     0     1\n" +
		"    8:      2     0     1     2     0     1     2     0\n"
	if got := mustTable(t, "equal", 16, 3).String(); got != want {
		t.Errorf("table is printed as\n%swant\n%s", got, want)
	}
	if got, want := mustTable(t, "1", 2, 2).String(), "    0:      1     1\n"; got != want {
		t.Errorf("table is printed as %q, want %q", got, want)
	}
}

// Flows spread over the workers, whether they differ in all or only in the source port.
func TestDistribution(t *testing.T) {
	const flows, bar = 1024, 1.35
	one := Tuple{protoUDP, netip.MustParseAddrPort("10.0.0.1:0"), netip.MustParseAddrPort("10.0.0.2:53")}
	r := rand.New(rand.NewPCG(6, 6))
	for _, kind := range []struct {
		name string
		next func(i int) Tuple
	}{
		{"random tcp4", func(int) Tuple { return randomPeers(r, protoTCP, false) }},
		{"random udp6", func(int) Tuple { return randomPeers(r, protoUDP, true) }},
		{"random icmp", func(int) Tuple { return randomPeers(r, protoICMP, false) }},
		{"random source port", func(int) Tuple { return withSport(one, uint16(r.Uint32())) }},
		{"source ports in row", func(i int) Tuple { return withSport(one, uint16(40000+i)) }},
	} {
		for _, cfg := range []Config{{}, {Symmetric: true}, {Key: "symmetric"}, {Func: "xxhash"}, {Func: "xxhash", Symmetric: true}} {
			h := mustNew(t, cfg)
			for _, workers := range []int{2, 3, 4, 5, 6, 8} {
				table := mustTable(t, "equal", 0, workers)
				load := make([]int, workers)
				for i := range flows {
					u := kind.next(i)
					load[table.Worker(table.Bucket(h.Hash(frameOf(u.Proto, u.Src, u.Dst))))]++
				}
				ratio := float64(slices.Max(load)) * float64(workers) / flows
				if ratio > bar {
					t.Errorf("%s, %+v over %d workers: loads %v, max/mean %.2f > %.2f", kind.name, cfg, workers, load, ratio, bar)
				}
			}
		}
	}
}

// randomPeers returns a flow between two different hosts.
func randomPeers(r *rand.Rand, proto uint8, ip6 bool) Tuple {
	for {
		if u := randomTuple(r, proto, ip6); u.Src.Addr() != u.Dst.Addr() {
			return u
		}
	}
}

func withSport(u Tuple, port uint16) Tuple {
	u.Src = netip.AddrPortFrom(u.Src.Addr(), port)
	return u
}
