package bpf

import (
	"testing"

	"github.com/epair-net/epair/rss"
	"github.com/epair-net/epair/rss/rsstest"
)

func TestQuickLook(t *testing.T) {
	h, table := mustHasher(t, rss.Config{}), mustTable(t, "", 0, 7)
	r := mustRSS(t, h, table)
	x := newXDPRun(mustCheck(t, r).CheckXdp)
	g := rsstest.Frames(1)
	n := 0
	for range 200000 {
		f := g.Next()
		if len(f) < 14 {
			continue
		}
		c, ret, err := x.run(f, 0)
		if err != nil || ret != xdpPass {
			t.Fatal(ret, err, len(f))
		}
		want := h.Hash(f)
		if c.Hash != want {
			n++
			if n < 5 {
				t.Errorf("%s: %08x want %08x %+v", dump(f), c.Hash, want, h.Explain(f))
			}
		}
	}
	t.Log(n)
}
