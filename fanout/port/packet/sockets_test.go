package packet

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// Real sockets in two namespaces, with whatever the kernel makes of their frames:
//
//	10.0.0.1 (a inner) ── a outer [forwarder] b outer ── (b inner) 10.0.0.2

const (
	addrA = "10.0.0.1"
	addrB = "10.0.0.2"
)

// hosts gives the two inner sides addresses and returns the running forwarder.
func hosts(t *testing.T, mtu int) (*world, *forwarder) {
	t.Helper()
	w := newWorld(t, mtu, 64)
	addr(t, w.a.InnerNS, w.a.Inner, addrA+"/24")
	addr(t, w.b.InnerNS, w.b.Inner, addrB+"/24")
	return w, w.start(t, 0)
}

func TestTCP(t *testing.T) {
	for _, c := range []struct {
		name  string
		mtu   int
		setUp func(*testing.T, *world)
	}{
		{"mtu 1500", 1500, nil},
		{"mtu 9000", 9000, nil},
		{"no segmentation", 1500, func(t *testing.T, w *world) { offloads(t, w.a.InnerNS, w.a.Inner, "tso", "off") }},
		{"no checksums", 1500, func(t *testing.T, w *world) { offloads(t, w.a.InnerNS, w.a.Inner, "tx", "off") }},
		{"gro before us", 9000, func(t *testing.T, w *world) {
			offloads(t, w.a.InnerNS, w.a.Inner, "tso", "off")
			offloads(t, w.outer, w.a.Outer, "gro", "on")
		}},
		{"xdp behind us", 1500, func(t *testing.T, w *world) { attachPass(t, w.b) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, f := hosts(t, c.mtu)
			if c.setUp != nil {
				c.setUp(t, w)
			}
			bulk(t, w, 48<<20)
			for i := range f.rx {
				f.check(t, i)
				if s := f.rx[i].Stats(); s.Drops[port.RxTruncated] != 0 {
					t.Errorf("end %d: drops %v", i, s.Drops)
				}
			}
		})
	}
}

// offloads sets offloads of an interface.
func offloads(t *testing.T, ns *porttest.NS, ifname string, args ...string) {
	t.Helper()
	var out []byte
	err := ns.Do(func() (err error) {
		out, err = exec.Command("ethtool", append([]string{"-K", ifname}, args...)...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("ethtool -K %s %v: %v: %s", ifname, args, err, out)
	}
}

// attachPass attaches an XDP program that passes everything to the inner side: the outer
// side takes no GSO frame whole from then on.
func attachPass(t *testing.T, v *porttest.Veth) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "BSD",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // XDP_PASS
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prog.Close() })
	err = v.InnerNS.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: v.InnerIndex})
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// bulk sends n bytes from a to b by TCP and back, and compares them.
func bulk(t *testing.T, w *world, n int) {
	t.Helper()
	var l net.Listener
	if err := w.b.InnerNS.Do(func() (err error) { l, err = net.Listen("tcp4", addrB+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	echoed := make(chan error, 1)
	go func() { echoed <- echo(l) }()
	var c net.Conn
	err := w.a.InnerNS.Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(40 * time.Second))
	data := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	want, got := sha256.New(), sha256.New()
	read := make(chan error, 1)
	go func() { _, err := io.Copy(got, c); read <- err }()
	for left := n; left > 0; left -= len(data) {
		data[0] = byte(left >> 20)
		want.Write(data)
		if _, err := c.Write(data); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatalf("read: %v", err)
	}
	if err := <-echoed; err != nil {
		t.Fatalf("echo: %v", err)
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Fatal("the bytes that came back are others")
	}
}

// echo sends one connection's bytes back.
func echo(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(40 * time.Second))
	_, err = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // by hand, so that splice(2) isn't used
	return err
}

// TestUDPSegmentation: one call makes one GSO frame of 40 datagrams; all arrive, in order.
func TestUDPSegmentation(t *testing.T) {
	for _, size := range []int{32, 40, 1000, 1400} { // 32 × 40 would fit a ring slot
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			w, f := hosts(t, 1500)
			in, out := udpPair(t, w)
			raw, err := out.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			err = raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
			})
			if err != nil {
				t.Fatal(err)
			}
			buf, datagram := make([]byte, 40*size), make([]byte, 2000)
			for round := range 50 {
				for i := range 40 {
					copy(buf[i*size:], fmt.Sprintf("%06d", 40*round+i))
				}
				if _, err := out.Write(buf); err != nil {
					t.Fatal(err)
				}
				for i := range 40 {
					_ = in.SetReadDeadline(time.Now().Add(10 * time.Second))
					n, err := in.Read(datagram)
					if want := fmt.Sprintf("%06d", 40*round+i); err != nil || n != size || string(datagram[:6]) != want {
						t.Fatalf("datagram %s: %d bytes, starts %q, error %v", want, n, datagram[:6], err)
					}
				}
			}
			if n := f.check(t, 0); n != 0 || f.sent[0].Frames > 60 {
				t.Errorf("%d lost, %d frames; want 50 GSO frames and a little ARP", n, f.sent[0].Frames)
			}
		})
	}
}

// udpPair returns a socket on b and one on a that is connected to it.
func udpPair(t *testing.T, w *world) (in, out *net.UDPConn) {
	t.Helper()
	err := w.b.InnerNS.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addrB)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	err = w.a.InnerNS.Do(func() (err error) {
		out, err = net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return in, out
}
