package rss

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"sync"
	"testing"

	"github.com/epair-net/epair/rss/rsstest"
)

// The verification suite of Microsoft ("Verifying the RSS Hash Calculation"); the columns
// reversed and symmetric follow from it by computation.
var microsoft = []struct {
	src, dst                    string
	two, four, reversed, symKey uint32
}{
	{"66.9.149.187:2794", "161.142.100.80:1766", 0x323e8fc2, 0x51ccc178, 0xfde799b2, 0x9fcc9fcc},
	{"199.92.111.2:14230", "65.69.140.83:4739", 0xd718262a, 0xc626b0ea, 0xe53c74e8, 0x60d760d7},
	{"24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0a5de, 0x5c2b394a, 0xa802b849, 0x3a3e3a3e},
	{"38.27.205.30:48228", "209.142.163.6:2217", 0x82989176, 0xafc7327f, 0xe1dfcdff, 0xd26ed26e},
	{"153.39.163.191:44251", "202.188.127.2:1303", 0x5d1809c5, 0x10e828a2, 0x15d05e13, 0xf23ef23e},
	{"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc18cd5, 0x40207d3d, 0x1ac0fcce, 0x13eb13eb},
	{"[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c461c, 0xdde51bbf, 0xe0f7edc9, 0x36913691},
	{"[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", "[fe80::200:f8ff:fe21:67cf]:38024", 0x4b61e985, 0x02d1feef, 0xd1bec7ad, 0x08090809},
}

func TestMicrosoftVectors(t *testing.T) {
	four, symKey := mustNew(t, Config{}), mustNew(t, Config{Key: "symmetric"})
	two := mustNew(t, Config{Fields: map[string]string{"tcp4": "sd", "tcp6": "sd"}})
	table := mustTable(t, "", 0, 4)
	for i, v := range microsoft {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		there, back := frameOf(protoTCP, src, dst), frameOf(protoTCP, dst, src)
		other := frameOf(protoESP, src, dst) // by addresses
		for _, c := range []struct {
			name      string
			got, want uint32
		}{
			{"4-tuple", four.Hash(there), v.four},
			{"reversed", four.Hash(back), v.reversed},
			{"2-tuple", two.Hash(there), v.two},
			{"other protocol", four.Hash(other), v.two},
			{"symmetric key", symKey.Hash(there), v.symKey},
			{"symmetric key, reversed", symKey.Hash(back), v.symKey},
		} {
			if c.got != c.want {
				t.Errorf("%s → %s: %s hash %08x, want %08x", v.src, v.dst, c.name, c.got, c.want)
			}
		}
		want4 := []int{120, 106, 74, 127, 34, 61, 63, 111}[i]
		want2 := []int{66, 42, 94, 118, 69, 85, 28, 5}[i]
		if b4, b2 := table.Bucket(four.Hash(there)), table.Bucket(two.Hash(there)); b4 != want4 || b2 != want2 {
			t.Errorf("%s → %s: buckets %d and %d, want %d and %d", v.src, v.dst, b4, b2, want4, want2)
		}
	}
}

// toeplitzByBits is the definition: for each bit of the input that is set, the
// 32 bits of the key that start there.
func toeplitzByBits(key, data []byte) (h uint32) {
	for i := range len(data) * 8 {
		if data[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		for b := range 32 {
			k := i + b
			h ^= uint32(key[k/8]>>(7-k%8)&1) << (31 - b)
		}
	}
	return h
}

// XXH64 with seed 0, from the reference implementation's own self-test and documentation.
func TestXXHashIsFoldedXXH64(t *testing.T) {
	h := mustNew(t, Config{Func: "xxhash"})
	for _, c := range []struct {
		in  string
		sum uint64
	}{{"", 0xef46db3751d8e999}, {"a", 0xd24ec4f1a98c6e5b}, {"abc", 0x44bc2cf5ad770999}} {
		want := uint32(c.sum>>32) ^ uint32(c.sum)
		if got := h.Hash([]byte(c.in)); got != want { // short frames are hashed as they are
			t.Errorf("%q: hash %08x, want %08x", c.in, got, want)
		}
	}
}

// configs are settings that take every way through the hasher.
func configs() []Config {
	all := []Config{{}, {Symmetric: true}, {Key: "symmetric"}, {Func: "xxhash"}, {Func: "xxhash", Symmetric: true}}
	for _, set := range []string{"sd", "fn"} {
		f := map[string]string{"tcp4": set, "udp6": set, "sctp4": set, "tcp6": set}
		all = append(all, Config{Fields: f}, Config{Fields: f, Symmetric: true})
	}
	all = append(all, Config{Fields: map[string]string{"tcp4": "s", "tcp6": "sn", "udp4": "df", "udp6": "d", "ip4": "s", "ip6": "d"}})
	for _, c := range all {
		c.Inner = true
		all = append(all, c)
	}
	return all
}

// Hash gives what the canonical key gives by the definition of the function,
// whichever way the frame takes through the code.
func TestHashIsThatOfTheKey(t *testing.T) {
	for _, cfg := range configs() {
		h := mustNew(t, cfg)
		g := rsstest.Frames(7)
		for range 10_000 {
			f := g.Next()
			k, e, got := h.FlowKey(f), h.Explain(f), h.Hash(f)
			want := e.Hash
			if h.Func() == Toeplitz {
				want = toeplitzByBits(h.Key(), k.Bytes())
			}
			if got != want || e.Hash != want || h.Sum(&k) != want {
				t.Fatalf("%+v: frame %x: hash %08x, explained %08x, key's %08x, want %08x", cfg, f, got, e.Hash, h.Sum(&k), want)
			}
			if e.Bytes != hex.EncodeToString(k.Bytes()) {
				t.Fatalf("%+v: frame %x: key %x, explained %s", cfg, f, k.Bytes(), e.Bytes)
			}
		}
	}
}

// Nothing at or behind Window is looked at.
func TestWindow(t *testing.T) {
	for _, cfg := range []Config{{}, {Inner: true}} {
		h := mustNew(t, cfg)
		g := rsstest.Frames(8)
		for range 100_000 {
			f := g.Next()
			if cut := f[:min(len(f), Window)]; h.Hash(f) != h.Hash(cut) {
				t.Fatalf("%+v: frame %x: hash %08x, of its first %d bytes %08x", cfg, f, h.Hash(f), Window, h.Hash(cut))
			}
		}
	}
}

func TestHashAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, cfg := range configs() {
		h := mustNew(t, cfg)
		g := rsstest.Frames(9)
		var frames [][]byte
		for range 500 {
			frames = append(frames, bytes.Clone(g.Next()))
		}
		if n := testing.AllocsPerRun(10, func() {
			for _, f := range frames {
				sink ^= h.Hash(f)
			}
		}); n != 0 {
			t.Errorf("%+v: %v allocations for %d frames", cfg, n, len(frames))
		}
	}
}

// A Hasher is shared by all workers: under the race detector this fails if one writes to it.
func TestHasherIsShared(t *testing.T) {
	h := mustNew(t, Config{Symmetric: true, Inner: true})
	want := hashes(h)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := hashes(h); got != want {
				t.Errorf("another goroutine's hashes are %08x, want %08x", got, want)
			}
		})
	}
	wg.Wait()
}

func hashes(h *Hasher) (x uint32) {
	g := rsstest.Frames(10)
	for range 5_000 {
		x = x*31 + h.Hash(g.Next())
	}
	return x
}

// ToeplitzTable is what a BPF map is filled with: the hash must follow from it alone.
func TestToeplitzTable(t *testing.T) {
	h := mustNew(t, Config{})
	table := h.ToeplitzTable()
	g := rsstest.Frames(11)
	for range 10_000 {
		f := g.Next()
		k := h.FlowKey(f)
		var want uint32
		for i, b := range k.Bytes() {
			want ^= table[i][b]
		}
		if got := h.Hash(f); got != want {
			t.Fatalf("frame %x: hash %08x, by the table %08x", f, got, want)
		}
	}
}
