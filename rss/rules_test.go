package rss

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// Parts of frames; bytes are in hexadecimal, spaces don't count.
const (
	macs   = "020000000b01 020000000a01 "
	v4Addr = "0a000001 0a000002 "
	v6Addr = "20010db8000000000000000000000001 20010db8000000000000000000000002 "
	ports  = "1388 0050 "
	rest   = "00000000 00000000 50100000 00000000 "

	head4 = "4500 0028 0001 4000 40" // protocol comes next; 20 bytes follow the header
	csum  = " 0000 "
	head6 = "6000 0000 0014 " // next header and hop limit come next; 20 bytes follow the header
)

func frame(parts ...string) []byte {
	f, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
	if err != nil {
		panic(err)
	}
	return f
}

// tcp4 is the frame that most of the cases change a little.
func tcp4() []byte { return frame(macs, "0800", head4, "06", csum, v4Addr, ports, rest) }

func with(f []byte, off int, b ...byte) []byte {
	f = slices.Clone(f)
	copy(f[off:], b)
	return f
}

// ipv6 returns a packet whose extension headers are given, each from its second byte on.
func ipv6(payload string, first string, tail ...string) []byte {
	return frame(append([]string{macs, "86dd 6000 0000 ", payload, first, "40 ", v6Addr}, tail...)...)
}

var (
	macKey = "020000000b01020000000a01"
	v4Key  = "0a0000010a000002"
	v6Key  = "20010db800000000000000000000000120010db8000000000000000000000002"
	pKey   = "13880050"
	tags   = "8100 0001 "
)

func TestFlowKeys(t *testing.T) {
	for _, c := range []struct {
		name string
		f    []byte
		typ  string
		key  string
		why  string
	}{
		{"nothing", nil, "raw", "", "header cut off"},
		{"13 bytes", frame(macs, "08"), "raw", macKey + "08", "header cut off"},
		{"14 bytes", frame(macs, "0800"), "mac", macKey + "0800", "header cut off"},
		{"ARP", frame(macs, "0806 0001080006040001"), "mac", macKey + "0806", ""},
		{"802.3 length", frame(macs, "0026 424203"), "mac", macKey + "0000", ""},
		{"highest length", frame(macs, "05ff 424203"), "mac", macKey + "0000", ""},
		{"lowest ethertype", frame(macs, "0600 424203"), "mac", macKey + "0600", ""},
		{"tcp4", tcp4(), "tcp4", v4Key + pKey, ""},
		{"udp4", with(tcp4(), 23, 17), "udp4", v4Key + pKey, ""},
		{"udplite4", with(tcp4(), 23, 136), "udp4", v4Key + pKey, ""},
		{"dccp4", with(tcp4(), 23, 33), "udp4", v4Key + pKey, ""},
		{"sctp4", with(tcp4(), 23, 132), "sctp4", v4Key + pKey, ""},
		{"icmp", with(tcp4(), 23, 1), "ip4", v4Key, ""},
		{"igmp", with(tcp4(), 23, 2), "ip4", v4Key, ""},
		{"esp", with(tcp4(), 23, 50), "ip4", v4Key, ""},
		{"AH over IPv4", with(tcp4(), 23, 51), "ip4", v4Key, ""},
		{"MAC of multicast", with(tcp4(), 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "tcp4", v4Key + pKey, ""},

		{"one tag", frame(macs, tags, "0800", head4, "06", csum, v4Addr, ports, rest), "tcp4", v4Key + pKey, ""},
		{"three kinds of tag", frame(macs, "9100 0001 88a8 0002", tags, "0800", head4, "06", csum, v4Addr, ports, rest), "tcp4", v4Key + pKey, ""},
		{"8 tags", frame(macs, strings.Repeat(tags, 8), "0800", head4, "06", csum, v4Addr, ports, rest), "tcp4", v4Key + pKey, ""},
		{"9 tags", frame(macs, strings.Repeat(tags, 9), "0800", head4, "06", csum, v4Addr, ports, rest), "mac", macKey + "8100", "too many tags or extension headers"},
		{"tagged ARP", frame(macs, tags, "0806 0001"), "mac", macKey + "0806", ""},
		{"tagged length", frame(macs, tags, "0040 4242"), "mac", macKey + "0000", ""},
		{"half a tag", frame(macs, "88a8 0001 8100 00"), "mac", macKey + "8100", "header cut off"},

		{"options", frame(macs, "0800 4700 0030 0001 4000 4006", csum, v4Addr, "0101010101010100", ports, rest), "tcp4", v4Key + pKey, ""},
		{"first fragment", with(tcp4(), 20, 0x20, 0), "ip4", v4Key, "fragment"},
		{"middle fragment", with(tcp4(), 20, 0x20, 9), "ip4", v4Key, "fragment"},
		{"last fragment", with(tcp4(), 20, 0, 9), "ip4", v4Key, "fragment"},
		{"highest offset bit", with(tcp4(), 20, 0x10, 0), "ip4", v4Key, "fragment"},
		{"reserved and don't-fragment bit", with(tcp4(), 20, 0xc0, 0), "tcp4", v4Key + pKey, ""},
		{"19 bytes of IPv4", tcp4()[:33], "mac", macKey + "0800", "header cut off"},
		{"20 bytes of IPv4", tcp4()[:34], "ip4", v4Key, "header cut off"},
		{"half of the ports", tcp4()[:37], "ip4", v4Key, "header cut off"},
		{"ports and no more", tcp4()[:38], "tcp4", v4Key + pKey, ""},
		{"options cut off", with(tcp4(), 14, 0x4f)[:40], "mac", macKey + "0800", "malformed IP header"},
		{"options behind the frame", with(with(tcp4(), 14, 0x4f), 17, 80)[:40], "ip4", v4Key, "header cut off"},
		{"version 5", with(tcp4(), 14, 0x55), "mac", macKey + "0800", "malformed IP header"},
		{"IHL 4", with(tcp4(), 14, 0x44), "mac", macKey + "0800", "malformed IP header"},
		{"total length 19", with(tcp4(), 16, 0, 19), "mac", macKey + "0800", "malformed IP header"},
		{"total length 20", with(tcp4(), 16, 0, 20), "ip4", v4Key, "header cut off"},
		{"total length 23", with(tcp4(), 16, 0, 23), "ip4", v4Key, "header cut off"},
		{"total length 24", with(tcp4(), 16, 0, 24), "tcp4", v4Key + pKey, ""},
		{"total length 65535", with(tcp4(), 16, 255, 255), "tcp4", v4Key + pKey, ""},
		{"total length unstated", with(tcp4(), 16, 0, 0), "tcp4", v4Key + pKey, ""},

		{"tcp6", ipv6("0014", "06", ports, rest), "tcp6", v6Key + pKey, ""},
		{"udp6", ipv6("0014", "11", ports, rest), "udp6", v6Key + pKey, ""},
		{"sctp6", ipv6("0014", "84", ports, rest), "sctp6", v6Key + pKey, ""},
		{"icmpv6", ipv6("0014", "3a", ports, rest), "ip6", v6Key, ""},
		{"no next header", ipv6("0000", "3b", ports), "ip6", v6Key, ""},
		{"39 bytes of IPv6", ipv6("0014", "06")[:53], "mac", macKey + "86dd", "header cut off"},
		{"40 bytes of IPv6", ipv6("0014", "06"), "ip6", v6Key, "header cut off"},
		{"version 4 in IPv6", with(ipv6("0014", "06", ports), 14, 0x40), "mac", macKey + "86dd", "malformed IP header"},
		{"payload length 3", ipv6("0003", "06", ports), "ip6", v6Key, "header cut off"},
		{"payload length 0", ipv6("0000", "06", ports), "ip6", v6Key, "header cut off"},
		{"jumbogram", ipv6("0000", "00", "06 00 c2040001 0000", ports, rest), "tcp6", v6Key + pKey, ""},
		{"all extension headers", ipv6("0064", "00", "2b 00 000000000000", "3c 01 0000000000000000000000000000", "33 00 000000000000", "2c 04 0000", strings.Repeat("00000000", 5), "06 00 0000 00000001", ports, rest), "tcp6", v6Key + pKey, ""},
		{"atomic fragment", ipv6("001c", "2c", "06 00 0000 12345678", ports, rest), "tcp6", v6Key + pKey, ""},
		{"reserved fragment bits", ipv6("001c", "2c", "06 ff 0006 12345678", ports, rest), "tcp6", v6Key + pKey, ""},
		{"first fragment of IPv6", ipv6("001c", "2c", "06 00 0001 12345678", ports, rest), "ip6", v6Key, "fragment"},
		{"last fragment of IPv6", ipv6("001c", "2c", "06 00 0008 12345678", ports, rest), "ip6", v6Key, "fragment"},
		{"extension header cut off by the frame", ipv6("0064", "00", "06 01 000000000000", ports), "ip6", v6Key, "header cut off"},
		{"extension header cut off by the length", ipv6("0007", "00", "06 00 000000000000", ports), "ip6", v6Key, "header cut off"},
		{"8 extension headers", ipv6("0064", "3c", strings.Repeat("3c 00 000000000000", 7), "06 00 000000000000", ports, rest), "tcp6", v6Key + pKey, ""},
		{"9 extension headers", ipv6("0064", "3c", strings.Repeat("3c 00 000000000000", 8), "06 00 000000000000", ports, rest), "ip6", v6Key, "too many tags or extension headers"},
		{"ports end just before the window", ipv6("00f0", "3c", "33 16", strings.Repeat("00", 182), "06 01 0000 00000001 00000001", ports, rest), "tcp6", v6Key + pKey, ""},
		{"ports behind the window", ipv6("00f0", "3c", "06 18", strings.Repeat("00", 198), ports, rest), "ip6", v6Key, "header cut off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := mustNew(t, Config{}).Explain(c.f)
			if e.Type != c.typ || e.Bytes != c.key || e.Why != c.why {
				t.Errorf("%x\n got %s %s %q\nwant %s %s %q", c.f, e.Type, e.Bytes, e.Why, c.typ, c.key, c.why)
			}
		})
	}
}

func TestFieldSubsets(t *testing.T) {
	src, dst, sport, dport := v4Key[:8], v4Key[8:], pKey[:4], pKey[4:]
	src6, dst6 := v6Key[:32], v6Key[32:]
	for _, c := range []struct{ set, v4, v6 string }{
		{"sdfn", v4Key + pKey, v6Key + pKey},
		{"nfds", v4Key + pKey, v6Key + pKey}, // the order of the letters says nothing
		{"sd", v4Key, v6Key},
		{"fn", pKey, pKey},
		{"s", src, src6},
		{"d", dst, dst6},
		{"f", sport, sport},
		{"n", dport, dport},
		{"sf", src + sport, src6 + sport},
		{"sn", src + dport, src6 + dport},
		{"df", dst + sport, dst6 + sport},
		{"dn", dst + dport, dst6 + dport},
		{"sdf", v4Key + sport, v6Key + sport},
		{"sdn", v4Key + dport, v6Key + dport},
		{"sfn", src + pKey, src6 + pKey},
		{"dfn", dst + pKey, dst6 + pKey},
	} {
		h := mustNew(t, Config{Fields: map[string]string{"tcp4": c.set, "tcp6": c.set}})
		e4, e6 := h.Explain(tcp4()), h.Explain(ipv6("0014", "06", ports, rest))
		if e4.Bytes != c.v4 || e6.Bytes != c.v6 {
			t.Errorf("%s: hashed %s and %s, want %s and %s", c.set, e4.Bytes, e6.Bytes, c.v4, c.v6)
		}
		if e := h.Explain(with(tcp4(), 23, 17)); e.Bytes != v4Key+pKey {
			t.Errorf("%s for tcp4 changed what is hashed of udp4: %s", c.set, e.Bytes)
		}
	}
	h := mustNew(t, Config{Fields: map[string]string{"ip4": "d", "ip6": "s"}})
	if e4, e6 := h.Explain(with(tcp4(), 23, 1)), h.Explain(ipv6("0014", "3a", ports, rest)); e4.Bytes != dst || e6.Bytes != src6 {
		t.Errorf("ip4 d and ip6 s: hashed %s and %s, want %s and %s", e4.Bytes, e6.Bytes, dst, src6)
	}
}
