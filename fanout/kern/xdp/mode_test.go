package xdp

import (
	"testing"

	"github.com/epair-net/epair/fanout/kern"
)

var modes = []kern.Mode{kern.Inline, kern.Pool, kern.Poller}

// Datagrams pass in every mode, whole, and each is in the ledger.
func TestModes(t *testing.T) {
	for _, queues := range []int{1, 2} {
		for _, m := range modes {
			t.Run(string(m), func(t *testing.T) {
				w := newWorld(t, 1500, queues)
				x := w.cross(t, m)
				w.ping(t, 0, 0, 1, 22, 1472)
				w.ping(t, 1, 100, 1000)
				ab, ba := balance(t, x)
				if ab.Tx < 4 || ba.Tx < 2 || total(ab.Drops) != 0 || total(ba.Drops) != 0 {
					t.Errorf("a→b %+v\nb→a %+v", ab, ba)
				}
				if n := len(x.Threads()); (m == kern.Poller) != (n == 2*queues) {
					t.Errorf("%d threads: %+v", n, x.Threads())
				}
			})
		}
	}
}
