package epair

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// TestVethPair:
//
//	namespace va           private             namespace vb
//	eth0 10.0.0.1 ── eUUIDv1   eUUIDv2 ── eth0 10.0.0.2, fd00::2
func TestVethPair(t *testing.T) {
	env := newEnv(t, EnvConfig{Queues: 3})
	c := vethPair("web", "va", "vb")
	c.A.Addresses, c.B.Addresses = []string{"10.0.0.1/24"}, []string{"10.0.0.2/24", "fd00::2/64"}
	c.B.MAC = "02:11:22:33:44:55"
	c.MTU = 9000
	p := create(t, env, c)

	for i, e := range p.ends() {
		inner := link(t, e.Netns(), "eth0")
		if inner.Index != e.InnerIndex() || inner.MTU != 9000 || inner.NumRxQueues != 3 || inner.NumTxQueues != 3 ||
			!bytes.Equal(inner.HardwareAddr, e.MAC()) || inner.Alias != e.tag() || inner.Flags&net.FlagUp != 0 {
			t.Errorf("inner side before Up: %+v", inner)
		}
		if inner.Index >= outerBase {
			t.Errorf("inner side has index %d", inner.Index)
		}
		if e.State() != Down {
			t.Errorf("state before Up: %s", e.State())
		}
		if want := []string{"a", "b"}[i]; e.Side() != want || e.Kind() != "veth" || e.Name() != "eth0" || e.MTU() != 9000 || e.TapFD() != -1 {
			t.Errorf("end: %s %s %s %d %d", e.Side(), e.Kind(), e.Name(), e.MTU(), e.TapFD())
		}
		checkOuter(t, env, e)
	}
	if p.A.MAC()[5] != 0x0a || p.B.MAC().String() != c.B.MAC {
		t.Errorf("addresses %s and %s", p.A.MAC(), p.B.MAC())
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	if p.State() != Up {
		t.Errorf("state after Up: %s", p.State())
	}
	checkAddresses(t, "va", "10.0.0.1/24")
	checkAddresses(t, "vb", "10.0.0.2/24", "fd00::2/64")
	if got := p.Config(); got.MTU != 9000 || got.Datapath != "auto" || got.Mode != "pool" || len(p.Warnings()) != 0 {
		t.Errorf("config %+v, warnings %v", got, p.Warnings())
	}
	before := world(t)
	for range 3 {
		if err := p.Delete(); err != nil {
			t.Fatal(err)
		}
	}
	if p.State() != Gone {
		t.Errorf("state after Delete: %s", p.State())
	}
	if after := world(t); len(after) != len(before)-4 { // two namespaces with lo and eth0 each
		t.Errorf("before %q\nafter %q", before, after)
	}
}

// checkOuter looks at the outer side and at the private namespace.
func checkOuter(t *testing.T, env *Env, e *End) {
	t.Helper()
	if e.NetnsFD() != env.private.FD() {
		t.Error("ports don't open the private namespace")
	}
	l, err := env.out.LinkByIndex(e.Ifindex())
	if err != nil {
		t.Fatal(err)
	}
	a := l.Attrs()
	if a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&unix.IFF_NOARP == 0 || a.MTU != 9000 || a.NumRxQueues != 3 || a.NumTxQueues != 3 {
		t.Errorf("outer side: %+v", a)
	}
	addrs, err := env.out.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil || len(addrs) != 0 {
		t.Errorf("addresses in the private namespace: %v %v", addrs, err)
	}
	if lo, err := env.out.LinkByName("lo"); err != nil || lo.Attrs().Flags&net.FlagUp != 0 {
		t.Errorf("lo of the private namespace: %+v %v", lo, err)
	}
}

func checkAddresses(t *testing.T, ref string, want ...string) {
	t.Helper()
	in(t, ref, func(h *netlink.Handle) error {
		addrs, err := h.AddrList(at(link(t, ref, "eth0").Index), netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, a := range addrs {
			got[a.IPNet.String()] = a.Flags
		}
		for _, w := range want {
			flags, ok := got[w]
			if !ok || flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
				t.Errorf("%s: address %s: there %v, flags %#x", ref, w, ok, flags)
			}
		}
		return nil
	})
}

// The private namespace hears what comes in, and says nothing: no answer to ARP, ping
// or broadcast, no frame of its own.
func TestOuterSidesAreSilent(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	c := vethPair("quiet", "qa", "qb")
	c.A.Addresses = []string{"10.9.0.1/24"}
	p := createUp(t, env, c)
	outer, err := env.out.LinkByIndex(p.A.Ifindex())
	if err != nil {
		t.Fatal(err)
	}
	// Frames that an interface with an address would answer: ARP for everybody, and a ping to the
	// outer side's own MAC address.
	var frames [][]byte
	for _, dst := range []net.HardwareAddr{{255, 255, 255, 255, 255, 255}, outer.Attrs().HardwareAddr} {
		frames = append(frames, arpRequest(p.A.MAC(), dst, "10.9.0.1", "10.9.0.2"), ping(p.A.MAC(), dst, "10.9.0.1", "255.255.255.255"),
			ping(p.A.MAC(), dst, "10.9.0.1", "10.9.0.2"))
	}
	inject(t, "qa", "eth0", frames)
	waitFor(t, "the frames to arrive", func() bool {
		s, err := p.A.Stats()
		return err == nil && s.RxFrames >= uint64(len(frames))
	})
	for _, e := range p.ends() {
		if s, err := e.Stats(); err != nil || s.TxFrames != 0 || s.TxDropped != 0 {
			t.Errorf("end %s has sent: %+v %v", e.Side(), s, err)
		}
	}
}

func arpRequest(src, dst net.HardwareAddr, from, to string) []byte {
	b := append(append(append([]byte{}, dst...), src...), 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(append(b, src...), netip.MustParseAddr(from).AsSlice()...)
	return append(append(b, 0, 0, 0, 0, 0, 0), netip.MustParseAddr(to).AsSlice()...)
}

func ping(src, dst net.HardwareAddr, from, to string) []byte {
	b := append(append(append([]byte{}, dst...), src...), 0x08, 0x00)
	ip := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0}, netip.MustParseAddr(from).AsSlice()...)
	ip = append(ip, netip.MustParseAddr(to).AsSlice()...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	icmp := []byte{8, 0, 0, 0, 0, 1, 0, 1}
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	return append(append(b, ip...), icmp...)
}

func checksum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}

// inject sends frames from an interface.
func inject(t *testing.T, ref, name string, frames [][]byte) {
	t.Helper()
	ns, err := netns.Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: i.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The same pair has the same addresses whenever it's created; no two ends have one address.
func TestMACs(t *testing.T) {
	seen := map[string]string{}
	for i := range 1000 {
		for _, side := range []byte{'a', 'b'} {
			c := EndConfig{Kind: Veth, Name: "eth0", Netns: strings.Repeat("n", i%7) + string(rune('a'+i%26)) + string(rune('0'+i/26%10)) + string(rune('A'+i/260)) + string(side)}
			m := stableMAC("machine", c.identity(), side)
			if user, taken := seen[m.String()]; taken {
				t.Fatalf("%s and %s both have %s", user, c, m)
			}
			seen[m.String()] = c.String()
			if m[0]&3 != 2 || m[5] != side-'a'+0x0a {
				t.Errorf("%s: %s", c, m)
			}
			if again := stableMAC("machine", c.identity(), side); !bytes.Equal(again, m) {
				t.Errorf("%s: %s, then %s", c, m, again)
			}
		}
	}
	if len(seen) != 2000 {
		t.Errorf("%d addresses", len(seen))
	}
	if bytes.Equal(stableMAC("x", "i", 'a'), stableMAC("y", "i", 'a')) {
		t.Error("two machines have the same")
	}
	env := newEnv(t, EnvConfig{})
	var macs [2]net.HardwareAddr
	for i := range macs {
		p := create(t, env, vethPair("mac", "ma", "mb"))
		macs[i] = p.A.MAC()
		if err := p.Delete(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(macs[0], macs[1]) {
		t.Errorf("created twice: %s, then %s", macs[0], macs[1])
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
