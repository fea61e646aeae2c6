package rss

import (
	"encoding/binary"
	"net/netip"
	"testing"
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

func mustNew(t testing.TB, cfg Config) *Hasher {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// frameOf builds the shortest frame that carries a 5-tuple.
func frameOf(proto uint8, src, dst netip.AddrPort) []byte {
	f := make([]byte, etherLen, 128)
	copy(f, "\x02\x00\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x0a")
	if src.Addr().Is4() {
		binary.BigEndian.PutUint16(f[12:], etherIP4)
		f = append(f, 0x45, 0, 0, ip4Len+20, 0, 1, 0x40, 0, 64, proto, 0, 0)
	} else {
		binary.BigEndian.PutUint16(f[12:], etherIP6)
		f = append(f, 0x60, 0, 0, 0, 0, 20, proto, 64)
	}
	f = append(append(f, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	f = binary.BigEndian.AppendUint16(f, src.Port())
	f = binary.BigEndian.AppendUint16(f, dst.Port())
	return append(f, make([]byte, 16)...)
}

func TestMicrosoftVectors(t *testing.T) {
	four, symKey := mustNew(t, Config{}), mustNew(t, Config{Key: "symmetric"})
	two := mustNew(t, Config{Fields: map[string]string{"tcp4": "sd", "tcp6": "sd"}})
	for _, v := range microsoft {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		there, back := frameOf(protoTCP, src, dst), frameOf(protoTCP, dst, src)
		other := frameOf(50, src, dst) // ESP: by addresses
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
	}
}
