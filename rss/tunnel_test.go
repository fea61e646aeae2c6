package rss

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// udpTo returns an IPv4 frame with a UDP header to a port, given in hexadecimal, and what it carries.
func udpTo(port string, tail ...string) []byte {
	return frame(append([]string{macs, "0800 4500 00c8 0001 0000 4011 0000 ac100001 ac100002 c001 ", port, "00b4 0000 "}, tail...)...)
}

// over returns an IPv4 frame with a protocol, given in hexadecimal, and what it carries.
func over(proto string, tail ...string) []byte {
	return frame(append([]string{macs, "0800 4500 00c8 0001 0000 40", proto, "0000 ac100001 ac100002 "}, tail...)...)
}

func TestTunnels(t *testing.T) {
	const (
		outer   = "ac100001ac100002"
		in4     = head4 + "06" + csum + v4Addr + ports + rest
		in6     = head6 + "0640" + v6Addr + ports + rest
		inMACs  = "060000000b02 060000000a02 "
		inMACKe = "060000000b02060000000a02"
		vx      = "0800 0000 000042 00 "
	)
	for _, c := range []struct {
		name  string
		f     []byte
		typ   string
		key   string
		inner bool
	}{
		{"VXLAN", udpTo("12b5", vx, inMACs, "0800", in4), "tcp4", v4Key + pKey, true},
		{"VXLAN on Linux's old port", udpTo("2118", vx, inMACs, "86dd", in6), "tcp6", v6Key + pKey, true},
		{"VXLAN, tagged inside", udpTo("12b5", vx, inMACs, tags, "0800", in4), "tcp4", v4Key + pKey, true},
		{"VXLAN with ARP", udpTo("12b5", vx, inMACs, "0806 0001"), "mac", inMACKe + "0806", true},
		{"VXLAN without an identifier", udpTo("12b5", "0000 0000 000042 00", inMACs, "0800", in4), "udp4", outer + "c00112b5", false},
		{"VXLAN, cut off", udpTo("12b5", vx[:12]), "udp4", outer + "c00112b5", false},
		{"VXLAN, inner frame cut off", udpTo("12b5", vx, inMACs, "08"), "udp4", outer + "c00112b5", false},
		{"VXLAN, inner IP cut off", udpTo("12b5", vx, inMACs, "0800 4500"), "udp4", outer + "c00112b5", false},
		{"VXLAN, inner IP malformed", udpTo("12b5", vx, inMACs, "0800 55", in4[2:]), "udp4", outer + "c00112b5", false},
		{"VXLAN, inner tag cut off", udpTo("12b5", vx, inMACs, "8100 00"), "udp4", outer + "c00112b5", false},
		{"VXLAN, inner ports cut off", udpTo("12b5", vx, inMACs, "0800", head4+"06"+csum+v4Addr, "13"), "ip4", v4Key, true},
		{"VXLAN, inner fragment", udpTo("12b5", vx, inMACs, "0800 4500 0028 0001 2000 4006", csum, v4Addr, ports, rest), "ip4", v4Key, true},
		{"VXLAN in a fragment", with(udpTo("12b5", vx, inMACs, "0800", in4), 20, 0x20, 0), "ip4", outer, false},
		{"answer to another port", udpTo("1234", vx, inMACs, "0800", in4), "udp4", outer + "c0011234", false},
		{"UDP-Lite to VXLAN's port", with(udpTo("12b5", vx, inMACs, "0800", in4), 23, 136), "udp4", outer + "c00112b5", false},

		{"Geneve with IPv4", udpTo("17c1", "0000 0800 000042 00", in4), "tcp4", v4Key + pKey, true},
		{"Geneve with Ethernet", udpTo("17c1", "0000 6558 000042 00", inMACs, "86dd", in6), "tcp6", v6Key + pKey, true},
		{"Geneve with options", udpTo("17c1", "0240 86dd 000042 00 0102 80 01 00000000", in6), "tcp6", v6Key + pKey, true},
		{"Geneve, options cut off", udpTo("17c1", "3f40 86dd 000042 00 0102 80 01 00000000", in6), "udp4", outer + "c00117c1", false},
		{"Geneve, version 1", udpTo("17c1", "4000 0800 000042 00", in4), "udp4", outer + "c00117c1", false},
		{"Geneve with MPLS", udpTo("17c1", "0000 8847 000042 00", in4), "udp4", outer + "c00117c1", false},

		{"GRE", over("2f", "0000 0800", in4), "tcp4", v4Key + pKey, true},
		{"GRE with checksum, key, sequence", over("2f", "b000 86dd 00000000 00000042 00000001", in6), "tcp6", v6Key + pKey, true},
		{"GRE with key and Ethernet", over("2f", "2000 6558 00000042", inMACs, "0800", in4), "tcp4", v4Key + pKey, true},
		{"GRE with routing", over("2f", "4000 0800 00000000 00000000", in4), "ip4", outer, false},
		{"GRE, version 1", over("2f", "3001 880b 0000 0000 00000000", in4), "ip4", outer, false},
		{"GRE with PPP", over("2f", "0000 880b", in4), "ip4", outer, false},
		{"GRE, cut off", over("2f", "0000 08"), "ip4", outer, false},
		{"GRE, key cut off", over("2f", "2000 0800 0000"), "ip4", outer, false},

		{"IPv4 in IPv4", over("04", in4), "tcp4", v4Key + pKey, true},
		{"IPv6 in IPv4", over("29", in6), "tcp6", v6Key + pKey, true},
		{"IPv4 in IPv6", ipv6("0028", "04", in4), "tcp4", v4Key + pKey, true},
		{"IPv6 in IPv6 behind an option", ipv6("0044", "3c", "29 00 000000000000", in6), "tcp6", v6Key + pKey, true},
		{"IPv6 said, IPv4 inside", over("29", in4), "ip4", outer, false},
		{"IPv4 inside an IPv4 fragment", with(over("04", in4), 20, 0, 1), "ip4", outer, false},

		{"GTP-U", udpTo("0868", "30ff 0028 00000042", in4), "tcp4", v4Key + pKey, true},
		{"GTP-U with a sequence number", udpTo("0868", "32ff 0040 00000042 0001 00 85", in6), "tcp6", v6Key + pKey, true},
		{"GTP-U with extension headers", udpTo("0868", "34ff 0040 00000042 0000 00 85 01 1009 c0 02 000000000000 00", in4), "tcp4", v4Key + pKey, true},
		{"GTP-U, extension header without length", udpTo("0868", "34ff 0040 00000042 0000 00 85 00 1009 00", in4), "udp4", outer + "c0010868", false},
		{"GTP-U, extension header cut off", udpTo("0868", "34ff 0040 00000042 0000 00 85 ff 1009 00", in4), "udp4", outer + "c0010868", false},
		{"GTP-U, 5 extension headers", udpTo("0868", "34ff 0040 00000042 0000 00 85", strings.Repeat("01 0000 85", 4), "01 0000 00", in4), "udp4", outer + "c0010868", false},
		{"GTP-U echo", udpTo("0868", "3201 0004 00000000 0001 0000", in4), "udp4", outer + "c0010868", false},
		{"GTP'", udpTo("0868", "20ff 0028 00000042", in4), "udp4", outer + "c0010868", false},
		{"GTP version 2", udpTo("0868", "50ff 0028 00000042", in4), "udp4", outer + "c0010868", false},
		{"GTP-U with Ethernet", udpTo("0868", "30ff 0028 00000042", inMACs, "0800", in4), "udp4", outer + "c0010868", false},

		{"no tunnel", tcp4(), "tcp4", v4Key + pKey, false},
		{"tunnel in a tunnel", over("04", head4, "04", csum, v4Addr, in4), "ip4", v4Key, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := mustNew(t, Config{Inner: true}).Explain(c.f)
			if e.Type != c.typ || e.Bytes != c.key || e.Inner != c.inner {
				t.Errorf("%x\n got %s %s inner %v\nwant %s %s inner %v", c.f, e.Type, e.Bytes, e.Inner, c.typ, c.key, c.inner)
			}
			if e := mustNew(t, Config{}).Explain(c.f); e.Inner {
				t.Errorf("looked into the tunnel without being told: %s", e.Bytes)
			}
		})
	}
}

// The length of the outer packet bounds what is inside.
func TestTunnelEndsWithOuterPacket(t *testing.T) {
	f := over("04", head4, "06", csum, v4Addr, ports, rest)
	h := mustNew(t, Config{Inner: true})
	for total, want := range map[byte]string{20 + 24: "tcp4", 20 + 23: "ip4", 20 + 20: "ip4"} {
		if e := h.Explain(with(f, 16, 0, total)); !e.Inner || e.Type != want {
			t.Errorf("outer length %d: %s, inner %v, want %s inside", total, e.Type, e.Inner, want)
		}
	}
	if e := h.Explain(with(f, 16, 0, 20+19)); e.Inner || e.Bytes != "ac100001ac100002" {
		t.Errorf("outer length 39: %s %s, want the outer flow", e.Type, e.Bytes)
	}
}

// A million random frames behind the headers of each tunnel: no panic, and the outer flow where nothing is inside.
func TestTunnelsOfNoise(t *testing.T) {
	rounds := 170_000
	if raceEnabled || testing.Short() {
		rounds = 10_000
	}
	h := mustNew(t, Config{Inner: true})
	plain := mustNew(t, Config{})
	r := rand.New(rand.NewPCG(4, 4))
	for _, head := range [][]byte{udpTo("12b5", "08"), udpTo("17c1"), udpTo("0868", "34ff"), over("2f"), over("04"), over("29")} {
		for range rounds {
			f := noise(r, head)
			e, got := h.Explain(f), h.Hash(f)
			if got != e.Hash || !e.Inner && got != plain.Hash(f) {
				t.Fatalf("%x: hash %08x, inner %v, explained %08x, outer %08x", f, got, e.Inner, e.Hash, plain.Hash(f))
			}
		}
	}
}

// noise returns the head and up to 127 random bytes, in a slice of just that length: reading
// behind it panics.
func noise(r *rand.Rand, head []byte) []byte {
	f := make([]byte, len(head)+r.IntN(128))
	for i := copy(f, head); i < len(f); i++ {
		f[i] = byte(r.Uint32())
	}
	if len(f) > len(head) && r.IntN(2) == 0 {
		f[len(head)] = []byte{0x45, 0x60, 0x20, 0}[r.IntN(4)]
	}
	return f
}

// One outer flow, 64 flows inside: spread over the workers with Inner, on one without.
func TestInnerSpreads(t *testing.T) {
	const workers = 4
	table := mustTable(t, "", 0, workers)
	for _, tunnel := range []func(in ...string) []byte{
		func(in ...string) []byte { return over("04", in...) },
		func(in ...string) []byte { return over("2f", append([]string{"0000 0800"}, in...)...) },
		func(in ...string) []byte { return udpTo("0868", append([]string{"30ff 0028 00000042"}, in...)...) },
		func(in ...string) []byte {
			return udpTo("12b5", append([]string{"0800 0000 000042 00", macs, "0800"}, in...)...)
		},
	} {
		for _, inner := range []bool{true, false} {
			h := mustNew(t, Config{Inner: inner})
			used := map[int]bool{}
			for flow := range 64 {
				f := tunnel(head4, "06", csum, v4Addr, ports, rest)
				f[len(f)-20] = byte(flow) // a byte of the inner source port
				used[table.Worker(table.Bucket(h.Hash(f)))] = true
			}
			if n := len(used); inner && n < 3 || !inner && n != 1 {
				t.Errorf("inner %v: 64 flows in one tunnel use %d of %d workers", inner, n, workers)
			}
		}
	}
}
