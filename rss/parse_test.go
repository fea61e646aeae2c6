package rss

import (
	"bytes"
	"testing"

	"github.com/epair-net/epair/rss/rsstest"
)

// The parser and gopacket see the same flow in every frame, outside and inside tunnels.
func TestParserAgreesWithGopacket(t *testing.T) {
	outer, inner := mustNew(t, Config{}), mustNew(t, Config{Inner: true})
	g := rsstest.Frames(1)
	var seen [NumFlowTypes]int
	inside := 0
	for i := range 200_000 {
		f := g.Next()
		typ := checkAgainstOracle(t, i, outer, f)
		seen[typ]++
		if in := checkAgainstOracle(t, i, inner, f); inner.Explain(f).Inner {
			inside++
			seen[in]++
		}
	}
	t.Logf("flows by type %v, inside tunnels %d", seen, inside)
	for typ, n := range seen {
		if n < 200 {
			t.Errorf("only %d flows of type %s were generated", n, FlowType(typ))
		}
	}
	if inside < 10_000 {
		t.Errorf("only %d flows inside tunnels were generated", inside)
	}
}

func checkAgainstOracle(t *testing.T, i int, h *Hasher, f []byte) FlowType {
	t.Helper()
	typ, want := oracleFlow(f, h.Inner())
	k := h.FlowKey(f)
	if e := h.Explain(f); e.Type != typ.String() || !bytes.Equal(k.Bytes(), want) {
		t.Fatalf("frame %d %x\ninner %v: parsed as %s %x (%s), gopacket says %s %x", i, f, h.Inner(), e.Type, k.Bytes(), e.Why, typ, want)
	}
	return typ
}
