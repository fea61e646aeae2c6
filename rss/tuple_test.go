package rss

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// A tuple has the hash, the key and the type of a frame that carries it.
func TestTupleEqualsFrame(t *testing.T) {
	for _, cfg := range configs() {
		h := mustNew(t, cfg)
		r := rand.New(rand.NewPCG(5, 5))
		for i := range 2_000 {
			u := randomTuple(r, []uint8{protoTCP, protoUDP, protoSCTP, protoUDPLite, protoDCCP, protoICMP, protoICMP6, protoESP}[i%8], i%16 < 8)
			if !u.hasPorts() {
				u.Src, u.Dst = netip.AddrPortFrom(u.Src.Addr(), 0), netip.AddrPortFrom(u.Dst.Addr(), 0)
			}
			got, err := h.ExplainTuple(u)
			if want := h.Explain(frameOf(u.Proto, u.Src, u.Dst)); err != nil || got != want {
				t.Fatalf("%+v: tuple %s: %+v, %v; frame %+v", cfg, u, got, err, want)
			}
			again, err := ParseTuple(u.String())
			if hash, _ := h.HashTuple(again); err != nil || again != u || hash != got.Hash {
				t.Fatalf("%s reads back as %s, %v, hash %08x, want %08x", u, again, err, hash, got.Hash)
			}
		}
	}
}

func TestParseTuple(t *testing.T) {
	for s, want := range map[string]string{
		"tcp 10.0.0.1:5000 10.0.0.2:80":               "tcp 10.0.0.1:5000 10.0.0.2:80",
		"  udp\t[2001:db8::1]:53  [2001:db8::2]:999 ": "udp [2001:db8::1]:53 [2001:db8::2]:999",
		"10.0.0.1:5000,10.0.0.2:80,tcp":               "tcp 10.0.0.1:5000 10.0.0.2:80",
		"sctp, 10.0.0.1:1, 10.0.0.2:2":                "sctp 10.0.0.1:1 10.0.0.2:2",
		"icmp 10.0.0.1 10.0.0.2":                      "icmp 10.0.0.1 10.0.0.2",
		"icmpv6 fe80::1 ff02::1":                      "icmpv6 fe80::1 ff02::1",
		"6 10.0.0.1:5000 10.0.0.2:80":                 "tcp 10.0.0.1:5000 10.0.0.2:80",
		"89 10.0.0.1 224.0.0.5":                       "89 10.0.0.1 224.0.0.5",
		"udp [::ffff:10.0.0.1]:1 [::1]:2":             "udp [::ffff:10.0.0.1]:1 [::1]:2", // mapped addresses are IPv6 in a frame
	} {
		if u, err := ParseTuple(s); err != nil || u.String() != want {
			t.Errorf("%q: %s, %v, want %s", s, u, err, want)
		}
	}
}

func TestParseTupleErrors(t *testing.T) {
	for s, want := range map[string]string{
		"":                               "write PROTO SRC[:PORT] DST[:PORT]",
		"tcp 10.0.0.1:1":                 "2 words",
		"tcp 10.0.0.1:1 10.0.0.2:2 x":    "4 words",
		"10.0.0.1:1 10.0.0.2:2 quic":     "no protocol",
		"256 10.0.0.1 10.0.0.2":          "no protocol",
		"tcp 10.0.0.1 10.0.0.2:80":       `endpoint "10.0.0.1": not an address with a port`,
		"tcp 10.0.0.1:1 10.0.0.2:65536":  `endpoint "10.0.0.2:65536"`,
		"icmp 10.0.0.1:1 10.0.0.2":       "a port that protocol 1 doesn't have",
		"tcp host:1 10.0.0.2:80":         `endpoint "host:1"`,
		"udp 10.0.0.1:1 [::1]:2":         "one address is IPv4, the other is IPv6",
		"udp [fe80::1%eth0]:1 [::1]:2":   "has a zone",
		"icmpv6 fe80::1 fe80::2%eth0":    "has a zone",
		"tcp 10.0.0.1:5000 10.0.0.2:80,": "",
	} {
		_, err := ParseTuple(s)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v, want one with %q", s, err, want)
		}
	}
}

func TestZeroTupleIsRefused(t *testing.T) {
	if _, err := mustNew(t, Config{}).HashTuple(Tuple{}); err == nil || !strings.Contains(err.Error(), "address is missing") {
		t.Errorf("error %v, want one about a missing address", err)
	}
}
