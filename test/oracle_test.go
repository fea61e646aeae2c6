package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/porttest"
)

//	namespace a, then b             namespace b, then a
//	send ── e0 ──── epair ──── e0 ── capture ┐
//	                                         ├ the same
//	send ── vi ─── one veth ── vo ── capture ┘
//	anonymous                      anonymous

// captureMAC is the receiving interface's address on both ways, so that "for this host" means the same.
func captureMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 0xb} }

// capture is what a packet socket tells of a frame.
type capture struct {
	data     string
	kind     uint8 // PACKET_HOST, PACKET_BROADCAST, …
	tag      uint32
	protocol uint16
}

// A pair shows the far host the same bytes, tags and packet types as a plain veth does.
func TestSameAsVeth(t *testing.T) {
	needRoot(t)
	frames := strangeFrames()
	want := throughVeth(t, frames)
	for _, c := range cells() {
		for _, way := range []string{"ab", "ba"} {
			t.Run(c.String()+"/"+way, func(t *testing.T) {
				cfg := c.config("")
				p := &cfg.Pairs[0]
				p.A.Addresses, p.B.Addresses = nil, nil
				to := &p.B
				if way == "ba" {
					to = &p.A
				}
				to.MAC = captureMAC().String()
				start(t, cfg)
				var tx, rx int
				inNS(t, way[1:], func() (err error) { rx, err = packetSocket(t, "e0"); return err })
				inNS(t, way[:1], func() (err error) { tx, err = packetSocket(t, "e0"); return err })
				got := carry(t, tx, rx, frames)
				for i, f := range frames {
					if got[i] != want[i] {
						t.Errorf("%s: came as\n%.60q\nby veth as\n%.60q", f.what, fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]))
					}
				}
			})
		}
	}
}

func throughVeth(t *testing.T, frames []strange) map[int]capture {
	t.Helper()
	inner, outer := porttest.NewNS(t), porttest.NewNS(t)
	v := porttest.NewVeth(t, outer, inner, "v", 1500, 1)
	var tx, rx int
	err := errors.Join(
		outer.Do(func() error {
			l, err := netlink.LinkByName(v.Outer)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetHardwareAddr(l, captureMAC()); err != nil {
				return err
			}
			rx, err = packetSocket(t, v.Outer)
			return err
		}),
		inner.Do(func() (err error) { tx, err = packetSocket(t, v.Inner); return err }))
	if err != nil {
		t.Fatal(err)
	}
	return carry(t, tx, rx, frames)
}

// packetSocket opens a packet socket on an interface of the current namespace.
func packetSocket(t *testing.T, ifname string) (int, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	wait := unix.Timeval{Sec: 10}
	all := unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: l.Attrs().Index} // ETH_P_ALL in network order
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Bind(fd, &all))
}

// carry sends all frames and returns what came of each. What the stacks send by themselves
// is passed over: only the test's frames have its source addresses.
func carry(t *testing.T, tx, rx int, frames []strange) map[int]capture {
	t.Helper()
	for i, f := range frames {
		copy(f.data[6:12], mark(i))
		if _, err := unix.Write(tx, f.data); err != nil {
			t.Fatalf("send %s, %d bytes: %v", f.what, len(f.data), err)
		}
	}
	got := map[int]capture{}
	for end := time.Now().Add(20 * time.Second); len(got) < len(frames) && time.Now().Before(end); {
		i, c, err := captureOne(rx)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if i < 0 {
			continue
		}
		if _, twice := got[i]; twice {
			t.Errorf("%s: came twice", frames[i].what)
		}
		got[i] = c
	}
	for i, f := range frames {
		if _, ok := got[i]; !ok {
			t.Errorf("%s, %d bytes: didn't come", f.what, len(f.data))
		}
	}
	return got
}

// mark is the source address of the i-th frame.
func mark(i int) []byte { return []byte{2, 0xca, 0xb1, 0xe0, byte(i >> 8), byte(i)} }

// captureOne returns the next frame and its number, -1 for one that isn't the test's.
func captureOne(fd int) (int, capture, error) {
	buf, oob := make([]byte, 4096), make([]byte, 256)
	n, oobn, _, from, err := unix.Recvmsg(fd, buf, oob, 0)
	if errors.Is(err, unix.EINTR) {
		return -1, capture{}, nil
	}
	if err != nil {
		return -1, capture{}, err
	}
	if n < 14 || string(buf[6:10]) != string(mark(0)[:4]) {
		return -1, capture{}, nil
	}
	ll := from.(*unix.SockaddrLinklayer)
	c := capture{data: string(buf[:n]), kind: ll.Pkttype, protocol: ll.Protocol}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range msgs {
		// struct tpacket_auxdata: the status's bit 4 tells that vlan_tci and vlan_tpid hold a tag
		if m.Header.Type == unix.PACKET_AUXDATA && binary.NativeEndian.Uint32(m.Data)&0x10 != 0 {
			c.tag = uint32(binary.NativeEndian.Uint16(m.Data[18:]))<<16 | uint32(binary.NativeEndian.Uint16(m.Data[16:]))
		}
	}
	return int(binary.BigEndian.Uint16(buf[10:])), c, err
}

// strange is a frame that some path or other treats in its own way.
type strange struct {
	what string
	data []byte
}

func strangeFrames() []strange {
	var all []strange
	add := func(what string, dst []byte, rest []byte) {
		all = append(all, strange{what, append(append(append([]byte(nil), dst...), make([]byte, 6)...), rest...)})
	}
	host, other := captureMAC(), []byte{2, 9, 9, 9, 9, 9}
	broadcast, lldp := []byte{255, 255, 255, 255, 255, 255}, []byte{1, 0x80, 0xc2, 0, 0, 0xe}
	for _, n := range []int{0, 1, 2, 3, 45, 46, 47, 100, 1499, 1500} {
		for _, dst := range [][]byte{host, other, broadcast, lldp} {
			add(fmt.Sprintf("to % x", dst), dst, typed(0x88b5, n))
		}
	}
	for _, typ := range []uint16{0, 46, 1500, 0x0600, 0x0806, 0x8847, 0x8863, 0x888e, 0x88cc, 0x9000, 0xffff} {
		add(fmt.Sprintf("ethertype %#04x", typ), lldp, typed(typ, 46))
	}
	add("pause", []byte{1, 0x80, 0xc2, 0, 0, 1}, typed(0x8808, 46))
	add("bpdu", []byte{1, 0x80, 0xc2, 0, 0, 0}, typed(38, 46))
	for _, tags := range [][]byte{
		{0x81, 0, 0, 0x64},
		{0x81, 0, 0xa0, 0},    // priority 5 without a VLAN
		{0x81, 0, 0x1f, 0xff}, // DEI, 4095
		{0x88, 0xa8, 0, 0x64},
		{0x88, 0xa8, 0, 0x64, 0x81, 0, 0, 0x64}, // QinQ with equal IDs
		{0x81, 0, 0, 0x64, 0x81, 0, 0, 0x64},
		{0x91, 0, 0, 0x64, 0x81, 0, 0, 1},
	} {
		longest := 1500 - len(tags)
		if tags[0] == 0x81 {
			longest += 4 // packet sockets allow for no other tag (packet_snd)
		}
		for _, n := range []int{2, 46, 1000, longest} {
			add(fmt.Sprintf("tags % x", tags), host, append(append([]byte(nil), tags...), typed(0x88b5, n)...))
		}
	}
	for _, n := range []int{0, 8, 26, 1480} {
		add("ipv4", host, ipv4(0x4000, 0, n))
		add("ipv4 with a wrong checksum", host, ipv4(0x4000, 1, n))
		add("first fragment", host, ipv4(0x2000, 0, n))
		add("last fragment", host, ipv4(0x00b9, 0, n))
	}
	return all
}

// typed is an ethertype and n bytes of payload.
func typed(typ uint16, n int) []byte {
	b := binary.BigEndian.AppendUint16(nil, typ)
	for i := range n {
		b = append(b, byte(i*31+n))
	}
	return b
}

// ipv4 is a UDP packet with n bytes behind its IP header (RFC 791). wrong is added to its checksum.
func ipv4(fragment, wrong uint16, n int) []byte {
	b := typed(0x0800, 20+n)
	ip := b[2:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 66, 0, 1, 10, 66, 0, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(20+n))
	binary.BigEndian.PutUint16(ip[6:], fragment)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16)+wrong)
	return b
}
