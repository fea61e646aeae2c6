package test

import (
	"testing"

	"github.com/epair-net/epair/control"
)

// The hash of kernel datapaths changes under load: each frame comes through once, in its place.
func TestKernelHashChanges(t *testing.T) {
	needRoot(t)
	for _, datapath := range []string{"direct", "tc", "xdp"} {
		t.Run(datapath, func(t *testing.T) {
			c := stitched()
			c.Pairs[0].Datapath, c.Pairs[0].Mode = datapath, "pool"
			d := start(t, c)
			l := startLoad(t, d, 20, false)
			for i := range 16 {
				fn, table := []string{"xxhash", "toeplitz"}[i%2], []string{"equal", "weight 1 3"}[i/2%2]
				if _, err := d.SetRSS(control.RSSChange{Func: &fn, Table: &table}); err != nil {
					t.Fatal(err)
				}
			}
			if lost, named := l.end(t); lost != 0 || named != 0 {
				t.Errorf("%d frames are missing, the ledger names %d", lost, named)
			}
		})
	}
}
