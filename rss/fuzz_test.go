package rss

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/epair-net/epair/rss/rsstest"
)

// ipEnd returns where an untagged IP packet ends by its own length; 0 if that can't be said.
func ipEnd(f []byte) int {
	if len(f) < 14+8 {
		return 0
	}
	switch length := int(binary.BigEndian.Uint16(f[16:])); {
	case f[12] == 8 && f[13] == 0 && f[14]>>4 == 4 && length != 0:
		return 14 + length
	case f[12] == 0x86 && f[13] == 0xdd && f[14]>>4 == 6:
		if payload := int(binary.BigEndian.Uint16(f[18:])); payload != 0 || f[20] != protoHop {
			return 14 + 40 + payload
		}
	}
	return 0
}

// checkPadding fails if the hash depends on what is behind an IP packet's end.
func checkPadding(t *testing.T, h *Hasher, f []byte) {
	t.Helper()
	end := ipEnd(f)
	if end == 0 || end > len(f) || h.Explain(f).Type == "mac" {
		return
	}
	want := h.Hash(f)
	changed := slices.Clone(f)
	for i := end; i < len(f); i++ {
		changed[i] ^= 0x5a
	}
	longer := append(slices.Clone(f[:end]), 1, 2, 3, 4, 5, 6, 7, 8)
	for _, other := range [][]byte{f[:end], changed, longer} {
		if got := h.Hash(other); got != want {
			t.Fatalf("frame %x, whose packet ends at %d: hash %08x, of %x %08x", f, end, want, other, got)
		}
	}
}

// answer exchanges the ends of the flow that the parser found.
func answer(f []byte, fl *flow) []byte {
	r := slices.Clone(f)
	exchange := func(a, b, n int) {
		copy(r[a:a+n], f[b:b+n])
		copy(r[b:b+n], f[a:a+n])
	}
	if fl.typ != Raw {
		exchange(fl.l2, fl.l2+6, 6)
	}
	if size := map[bool]int{false: 4, true: 16}[fl.typ.isIP6()]; fl.typ >= IP4 {
		exchange(fl.addr, fl.addr+size, size)
	}
	if fl.typ.hasPorts() {
		exchange(fl.l4, fl.l4+2, 2)
	}
	return r
}

// checkFrame fails if any of the promises that hold for every frame is broken.
func checkFrame(t *testing.T, h *Hasher, f []byte) {
	t.Helper()
	before := bytes.Clone(f)
	k, got := h.FlowKey(f), h.Hash(f)
	if want := h.Sum(&k); got != want || h.Explain(f).Hash != want {
		t.Fatalf("frame %x: hash %08x, of its key %08x, explained %08x", f, got, want, h.Explain(f).Hash)
	}
	if cut := f[:min(len(f), Window)]; h.Hash(cut) != got {
		t.Fatalf("frame %x: hash %08x, of its first %d bytes %08x", f, got, Window, h.Hash(cut))
	}
	if !bytes.Equal(f, before) {
		t.Fatalf("frame %x was changed to %x", before, f)
	}
	checkPadding(t, h, f)
	var fl flow
	if fl.parse(f, h.inner); h.symmetric && !h.inner { // ports of a tunnel may not be exchanged
		if back := answer(f, &fl); h.Hash(back) != got {
			t.Fatalf("frame %x: hash %08x, its answer %x %08x", f, got, back, h.Hash(back))
		}
	}
}

func fuzzConfigs() []Config {
	return []Config{{}, {Symmetric: true}, {Inner: true}, {Inner: true, Symmetric: true}, {Func: "xxhash", Symmetric: true},
		{Symmetric: true, Fields: map[string]string{"tcp4": "fn", "udp6": "sd"}}}
}

func FuzzHash(f *testing.F) {
	g := rsstest.Frames(13)
	for range 200 {
		f.Add(bytes.Clone(g.Next()))
	}
	var hs []*Hasher
	for _, cfg := range fuzzConfigs() {
		hs = append(hs, mustNew(f, cfg))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, h := range hs {
			checkFrame(t, h, slices.Clip(frame))
		}
	})
}

// The fuzz target's promises, for many more frames than its corpus has.
func TestPromisesHoldForGeneratedFrames(t *testing.T) {
	for _, cfg := range fuzzConfigs() {
		h := mustNew(t, cfg)
		g := rsstest.Frames(14)
		for range 20_000 {
			checkFrame(t, h, slices.Clip(g.Next()))
		}
	}
}

func FuzzParseTuple(f *testing.F) {
	for _, s := range []string{"tcp 10.0.0.1:5000 10.0.0.2:80", "[2001:db8::1]:53,[2001:db8::2]:999,udp", "icmp 10.0.0.1 10.0.0.2", "47 ::1 ::2", "tcp"} {
		f.Add(s)
	}
	h := mustNew(f, Config{})
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseTuple(s)
		if err != nil {
			return
		}
		again, err := ParseTuple(u.String())
		if err != nil || again != u {
			t.Fatalf("%q is %v, which reads back as %v, %v", s, u, again, err)
		}
		if _, err := h.HashTuple(u); err != nil {
			t.Fatalf("%q was read, but: %v", s, err)
		}
	})
}

func FuzzParseTable(f *testing.F) {
	for _, s := range []string{"", "equal", "equal 3", "weight 1 3", "0,1,0,1", "weight 0 0", "4,5,6", "equal -1", "equal 2 3"} {
		f.Add(s, 0, 4)
		f.Add(s, 16, 6)
	}
	f.Fuzz(func(t *testing.T, spec string, size, workers int) {
		table, err := ParseTable(spec, size, workers)
		if err != nil {
			return
		}
		n := table.Size()
		if n < 1 || n > MaxTableSize || n&(n-1) != 0 || size != 0 && n != size {
			t.Fatalf("%q, size %d: table of %d buckets", spec, size, n)
		}
		for b := range n {
			if w := table.Worker(b); w < 0 || w >= workers {
				t.Fatalf("%q: bucket %d is worker %d's of %d", spec, b, w, workers)
			}
		}
	})
}

func FuzzNew(f *testing.F) {
	f.Add("toeplitz", "default", "tcp4", "sdfn", true)
	f.Add("xxhash", "", "ip6", "sd", false)
	f.Add("", microsoftKey, "udp6", "sf", true)
	f.Add("", "6d:5a:56", "mac", "", false)
	f.Fuzz(func(t *testing.T, fn, key, typ, letters string, symmetric bool) {
		h, err := New(Config{Func: fn, Key: key, Symmetric: symmetric, Fields: map[string]string{typ: letters}})
		if err != nil {
			return
		}
		again, err := New(h.Config())
		if err != nil {
			t.Fatalf("the normal form %+v is refused: %v", h.Config(), err)
		}
		if f := tcp4(); again.Hash(f) != h.Hash(f) {
			t.Fatalf("the normal form %+v hashes otherwise", h.Config())
		}
	})
}
