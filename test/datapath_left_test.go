package test

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/internal/ethtool"
)

// After a change the ends' offloads are those of a pair that was made so. Nothing of the former datapath is left: no program on an end,
// and nothing in this process.
func TestDatapathLeavesNothing(t *testing.T) {
	needRoot(t)
	round := []way{{"xdp", "pool"}, {"tc", "pool"}, {"xdp", "poller"}, {"tc", "poller"}, {"user", "pool"}}
	fresh := map[way]map[string]ethtool.Feature{}
	for _, w := range round {
		c := stitched()
		c.Pairs[0].Datapath, c.Pairs[0].Mode = w.datapath, w.mode
		d := start(t, c)
		fresh[w] = features(t)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, stitched())
	var held []int
	for range 3 {
		for _, w := range round {
			if _, err := d.Set("p", control.PairChange{Datapath: w.datapath, Mode: w.mode}); err != nil {
				t.Fatal(err)
			}
			for f, now := range features(t) {
				if now.On != fresh[w][f].On {
					t.Errorf("%v: %s is %v, want %v", w, f, now.On, fresh[w][f].On)
				}
			}
		}
		held = append(held, bpfObjects(t))
		for _, side := range []string{"a", "b"} {
			if n := attached(t, side); n > 0 {
				t.Errorf("end %s has %d programs", side, n)
			}
		}
	}
	if held[2] != held[1] {
		t.Errorf("BPF objects: %v", held)
	}
}

// bpfObjects counts the programs, maps and links that this process holds.
func bpfObjects(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "anon_inode:bpf") {
			n++
		}
	}
	return n
}

func features(t *testing.T) (all map[string]ethtool.Feature) {
	t.Helper()
	inNS(t, "a", func() (err error) { all, err = ethtool.Features("e0"); return err })
	return all
}

// attached counts the programs of an end.
func attached(t *testing.T, side string) (n int) {
	t.Helper()
	inNS(t, side, func() error {
		l, err := netlink.LinkByName("e0")
		if err != nil {
			return err
		}
		if l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			n++
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
			if err != nil {
				return err
			}
			n += len(r.Programs)
		}
		return nil
	})
	return n
}
