package wire

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestHeadersAreDifferentFlowsOfTheNetworks(t *testing.T) {
	src, dst := MAC{2, 1}, MAC{2, 2}
	headers := Headers(MaxFlow, 7, src, dst)
	seen := map[[12]byte]bool{}
	for _, h := range headers {
		seen[[12]byte(h[26:38])] = true
		if MAC(h[0:6]) != dst || MAC(h[6:12]) != src {
			t.Fatalf("addresses % x", h[:12])
		}
		from, _ := netip.AddrFromSlice(h[26:30])
		to, _ := netip.AddrFromSlice(h[30:34])
		if !SrcNet().Contains(from) || !DstNet().Contains(to) {
			t.Fatalf("flow %s to %s", from, to)
		}
	}
	if len(seen) != MaxFlow {
		t.Errorf("%d flows of %d differ", len(seen), MaxFlow)
	}
}

func TestSeedMakesTheFlows(t *testing.T) {
	a, b, c := Headers(100, 1, MAC{}, MAC{}), Headers(100, 1, MAC{}, MAC{}), Headers(100, 2, MAC{}, MAC{})
	same := 0
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("flow %d differs under the same seed", i)
		}
		if a[i] == c[i] {
			same++
		}
	}
	if same != 0 {
		t.Errorf("%d flows are the same under another seed", same)
	}
}

// The sum, completed with the missing words and folded, is the checksum of RFC 1071.
func TestSumCompletesTheChecksum(t *testing.T) {
	h := Headers(1, rand.Uint64(), MAC{}, MAC{})[0]
	ip := h[etherSize : etherSize+ipSize]
	sum := h.Sum()
	for _, field := range []struct{ at, value uint16 }{{2, 1234}, {4, 0xfedc}} {
		binary.BigEndian.PutUint16(ip[field.at:], field.value)
		sum += uint32(binary.NativeEndian.Uint16(ip[field.at:]))
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.NativeEndian.PutUint16(ip[10:], ^uint16(sum))
	total := uint16(0)
	for i := 0; i < len(ip); i += 2 {
		s, carry := bits.Add32(uint32(total), uint32(binary.BigEndian.Uint16(ip[i:])), 0)
		total = uint16(s) + uint16(s>>16) + uint16(carry)
	}
	if total != 0xffff {
		t.Errorf("header sums to %#x with its checksum", total)
	}
}

// frame is one as the generator makes it.
func frame() []byte {
	h := Headers(1, 3, MAC{}, MAC{})[0]
	f := append(h[:], make([]byte, MinSize-len(h))...)
	binary.BigEndian.PutUint16(f[18:], 9)
	binary.NativeEndian.PutUint16(f[42:], 10)
	binary.NativeEndian.PutUint32(f[44:], 11)
	binary.NativeEndian.PutUint64(f[48:], 12)
	binary.NativeEndian.PutUint32(f[56:], 13)
	return f
}

func TestParse(t *testing.T) {
	if s, ok := Parse(frame()); !ok || s != (Stamp{9, 10, 11, 12, 13}) {
		t.Errorf("got %+v, %t", s, ok)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"short":    func(f []byte) []byte { return f[:MinSize-1] },
		"ipv6":     func(f []byte) []byte { f[12] = 0x86; return f },
		"options":  func(f []byte) []byte { f[14] = 0x46; return f },
		"tcp":      func(f []byte) []byte { f[23] = 6; return f },
		"from":     func(f []byte) []byte { f[27] = 20; return f },
		"to":       func(f []byte) []byte { f[30] = 10; return f },
		"nothing":  func([]byte) []byte { return nil },
		"ethernet": func(f []byte) []byte { return f[:14] },
	} {
		if _, ok := Parse(spoil(frame())); ok {
			t.Errorf("%s: taken for one of ours", name)
		}
	}
}

// A finished frame parses, and its checksum is that of RFC 1071.
func TestFinish(t *testing.T) {
	h := Headers(1, 5, MAC{}, MAC{})[0]
	f := append(h[:], make([]byte, 9000-len(h))...)
	want := Stamp{Run: 300, Flow: 2, Seq: 3, Due: 4, Late: 5}
	Finish(f, h.Sum(), want)
	if got, ok := Parse(f); !ok || got != want {
		t.Errorf("got %+v, %t", got, ok)
	}
	total := uint32(0)
	for i := etherSize; i < etherSize+ipSize; i += 2 {
		total += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	if total = total&0xffff + total>>16; total != 0xffff || binary.BigEndian.Uint16(f[16:]) != 8986 || binary.BigEndian.Uint16(f[38:]) != 8966 {
		t.Errorf("sum %#x, lengths % x % x", total, f[16:18], f[38:40])
	}
}

func TestIP6(t *testing.T) {
	headers := Headers6(100, 5, MAC{2, 1}, MAC{2, 2})
	seen := map[string]bool{}
	for i := range headers {
		h := &headers[i]
		seen[string(h[22:58])] = true
		if !SrcNet6().Contains(netip.AddrFrom16([16]byte(h[22:]))) || !DstNet6().Contains(netip.AddrFrom16([16]byte(h[38:]))) {
			t.Fatalf("addresses % x", h[22:54])
		}
	}
	if len(seen) != len(headers) {
		t.Errorf("%d flows of %d differ", len(seen), len(headers))
	}
	f := append(headers[0][:], make([]byte, MinSize6-len(headers[0]))...)
	want := Stamp{Run: 300, Flow: 2, Seq: 3, Due: 4, Late: 5}
	Finish6(f, want)
	if got, ok := Parse(f); !ok || got != want || f[19] != 26 || f[59] != 26 {
		t.Errorf("got %+v, %t, lengths %d %d", got, ok, f[19], f[59])
	}
	f[23] = 0xd
	if _, ok := Parse(f); ok {
		t.Error("another network's frame was taken")
	}
}

func TestCheckSize(t *testing.T) {
	for size, ok := range map[int]bool{0: false, 59: false, 60: true, 9014: true, 9015: false} {
		if err := CheckSize(size); (err == nil) != ok {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(frame())
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := Parse(b); ok && len(b) < MinSize {
			t.Errorf("%d bytes taken", len(b))
		}
	})
}
