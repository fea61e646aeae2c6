package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/rss"
)

// benchFrames are what the cost is reported for.
var benchFrames = []struct {
	name  string
	frame []byte
}{
	{"ip4", flowFrame("192.0.2.1:40000", "198.51.100.2:80", 0)},
	{"ip6", flowFrame("[2001:db8::1]:40000", "[2001:db8::2]:80", 0)},
	{"ip4/tag", flowFrame("192.0.2.1:40000", "198.51.100.2:80", 1)},
	{"ip6/tag", flowFrame("[2001:db8::1]:40000", "[2001:db8::2]:80", 1)},
	{"arp", append(append(make([]byte, 12), 8, 6), make([]byte, 46)...)},
}

// flowFrame builds a TCP frame of at least 60 bytes.
func flowFrame(from, to string, tags int) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	f := []byte("\x02\x00\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x0a")
	for range tags {
		f = append(f, 0x81, 0, 0, 5)
	}
	if src.Addr().Is4() {
		f = append(f, 8, 0, 0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0)
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64)
	}
	f = append(append(f, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	f = binary.BigEndian.AppendUint16(f, src.Port())
	f = binary.BigEndian.AppendUint16(f, dst.Port())
	return append(f, make([]byte, 22)...)
}

// BenchmarkClassify reports what classify costs above a bare program of its kind, both in
// alternation; ns/frame is the difference of the least times.
func BenchmarkClassify(b *testing.B) {
	for _, cfg := range []rss.Config{{}, {Func: "xxhash"}, {Symmetric: true}, {Func: "xxhash", Symmetric: true}} {
		r := mustRSS(b, mustHasher(b, cfg), mustTable(b, "", 0, 4))
		p := mustCheck(b, r)
		for _, hook := range []struct {
			name       string
			prog, bare *ebpf.Program
		}{
			{"xdp", p.CheckXdp, p.BareXdp}, {"tc", p.CheckTc, p.BareTc},
			{"packet", p.CheckPacket, p.BareSocket},
		} {
			for _, f := range benchFrames {
				name := fmt.Sprintf("%s/%s/%s", hook.name, mustHasher(b, cfg).Func(), f.name)
				if cfg.Symmetric {
					name += "/symmetric"
				}
				b.Run(name, func(b *testing.B) { benchAbove(b, hook.prog, hook.bare, f.frame) })
			}
		}
	}
}

func benchAbove(b *testing.B, prog, bare *ebpf.Program, frame []byte) {
	least := [2]float64{1e9, 1e9}
	runs := 0
	for b.Loop() {
		for i, p := range []*ebpf.Program{prog, bare} {
			const repeat = 100_000
			_, ns, err := p.Benchmark(frame, repeat, nil)
			if err != nil {
				b.Fatal(err)
			}
			least[i] = min(least[i], float64(ns.Nanoseconds()))
		}
		runs++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(least[0]-least[1], "ns/frame")
	b.ReportMetric(least[1], "bare-ns")
}
