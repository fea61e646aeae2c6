package test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

//	namespace a                       epair               namespace b
//	socket, UDP_SEGMENT ── e0 ── port ─ worker ─ port ── e0 ── socket
//	one write of many datagrams                                each of them

// One write that UDP segmentation cuts into many datagrams (udp(7)) arrives as those
// datagrams, in their order, whoever along the way does the cutting.
func TestUDPSegments(t *testing.T) {
	needRoot(t)
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			start(t, c.config(""))
			for _, to := range []string{"10.66.0.2", "fd66::2"} {
				for _, size := range []int{16, 500, 1400} {
					segments(t, to, size)
				}
			}
		})
	}
}

// segments sends 40 datagrams of size bytes and a shorter one in one write, five times over.
func segments(t *testing.T, to string, size int) {
	t.Helper()
	const whole, last, rounds = 40, 9, 5
	var a, b *net.UDPConn
	inNS(t, "b", func() (err error) {
		b, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), 0)))
		return err
	})
	defer b.Close()
	inNS(t, "a", func() (err error) { a, err = net.DialUDP("udp", nil, b.LocalAddr().(*net.UDPAddr)); return err })
	defer a.Close()
	cut(t, a, size)
	in := make([]byte, 1<<16)
	for round := range rounds {
		out := make([]byte, whole*size+last)
		for i := 0; i < len(out); i += size {
			binary.BigEndian.PutUint32(out[i:], uint32(round*len(out)+i))
		}
		if _, err := a.Write(out); err != nil {
			t.Fatalf("write to %s in segments of %d: %v", to, size, err)
		}
		_ = b.SetReadDeadline(time.Now().Add(10 * time.Second))
		for rest := out; len(rest) > 0; {
			n, err := b.Read(in)
			want := rest[:min(size, len(rest))]
			if err != nil || string(in[:n]) != string(want) {
				t.Fatalf("to %s, segments of %d, round %d: with %d bytes to come, a datagram of %d bytes, error %v; want the next %d",
					to, size, round, len(rest), n, err, len(want))
			}
			rest = rest[len(want):]
		}
	}
}

// cut sets the socket's segment size.
func cut(t *testing.T, c *net.UDPConn, size int) {
	t.Helper()
	rc, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var serr error
	err = rc.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
	})
	if err != nil || serr != nil {
		t.Fatalf("set UDP_SEGMENT: %v %v", err, serr)
	}
}
