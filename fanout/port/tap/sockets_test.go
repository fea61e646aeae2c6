package tap

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// patience is how long anything may take on a loaded machine.
const patience = 10 * time.Second

// connect returns both ends of a TCP connection.
func connect(t testing.TB, from, to *porttest.NS, addr string) (out, in *net.TCPConn) {
	t.Helper()
	var ln net.Listener
	if err := to.Do(func() (err error) { ln, err = net.Listen("tcp", addr+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var c net.Conn
	err := from.Do(func() (err error) { c, err = net.DialTimeout("tcp", ln.Addr().String(), patience); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// A stream arrives as it was sent, both ways at once, and its frames are as long as segmentation
// offload makes them.
func TestTCP(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprintf("mtu %d", mtu), func(t *testing.T) {
			a, b, f := newHosts(t, mtu)
			out, in := connect(t, a.ns, b.ns, addrB)
			const size = 48 << 20
			errs := make(chan error, 4)
			go func() { errs <- sendRandom(out, 1, size) }()
			go func() { errs <- checkRandom(in, 1, size) }()
			go func() { errs <- sendRandom(in, 2, size) }()
			go func() { errs <- checkRandom(out, 2, size) }()
			for range 4 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			f.halt(t)
			for i, s := range f.tally {
				if mean := s.Bytes / max(s.Frames, 1); s.Drops.Total() != 0 || mean < uint64(2*mtu) {
					t.Errorf("direction %d: %+v, %d bytes a frame: want no drops and frames of many segments", i, s, mean)
				}
			}
		})
	}
}

func stream(seed uint64, size int64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return io.LimitReader(rand.NewChaCha8(key), size)
}

func sendRandom(c *net.TCPConn, seed uint64, size int64) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{c}, stream(seed, size), make([]byte, 256<<10)); err != nil {
		return err
	}
	return c.CloseWrite()
}

func checkRandom(c *net.TCPConn, seed uint64, size int64) error {
	want, got := sha256.New(), sha256.New()
	if _, err := io.Copy(want, stream(seed, size)); err != nil {
		return err
	}
	n, err := io.Copy(got, c)
	if err != nil {
		return err
	}
	if n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return fmt.Errorf("stream %d: %d of %d bytes arrived, not as they were sent", seed, n, size)
	}
	return nil
}

// Datagrams that a socket sends as one GSO frame cross as one frame and arrive as many.
func TestUDPSegmentation(t *testing.T) {
	const segment, segments, rounds = 1200, 40, 50
	a, b, f := newHosts(t, 1500)
	in, out := udpPair(t, a.ns, b.ns)
	rc, err := out.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment) })
	if err != nil {
		t.Fatal(err)
	}
	// The first exchange resolves the address, so that what follows is counted alone.
	if _, err := out.Write(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*segment)
	in.SetReadDeadline(time.Now().Add(patience))
	if n, err := in.Read(got); n != 10 || err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	for round := range rounds {
		sent := make([]byte, segment*segments-100)
		if _, err := io.ReadFull(stream(uint64(round), int64(len(sent))), sent); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(sent); err != nil {
			t.Fatal(err)
		}
		for len(sent) > 0 {
			n, err := in.Read(got)
			want := sent[:min(segment, len(sent))]
			if err != nil || !bytes.Equal(got[:n], want) {
				t.Fatalf("round %d: datagram of %d bytes, %v: want %d, %d bytes are to come", round, n, err, len(want), len(sent))
			}
			sent = sent[len(want):]
		}
	}
	f.halt(t)
	if s := f.tally[0]; s.Drops != (port.Drops{}) || s.Frames > 2*rounds {
		t.Errorf("%+v: want no drops and about one frame for %d datagrams", s, segments)
	}
}

func udpPair(t testing.TB, from, to *porttest.NS) (in, out *net.UDPConn) {
	t.Helper()
	err := to.Do(func() (err error) {
		in, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addrB)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	err = from.Do(func() (err error) {
		out, err = net.DialUDP("udp", nil, in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return in, out
}

// Bursts with silence behind them: no frame waits for the next one to push it. A burst that
// isn't complete stops the test.
func TestBurstThenSilence(t *testing.T) {
	const bursts = 5000
	a, b := newTAP(t, "tap0", 1500), newTAP(t, "tap0", 1500)
	startForwarder(t, a, b, 1500)
	in, out := a.far(t), b.far(t)
	r := rand.New(rand.NewPCG(1, 2))
	seq := uint32(0)
	for burst := range bursts {
		n := 1 + r.IntN(4)
		if burst%50 == 0 {
			n = 1 + r.IntN(300) // several batches
		}
		for range n {
			if err := in.Send(nil, numbered(0, seq, 60+r.IntN(1400))); err != nil {
				t.Fatal(err)
			}
			seq++
		}
		for i := range uint32(n) {
			_, f, err := out.Recv(patience)
			if err != nil || f == nil {
				t.Fatalf("burst %d: frame %d of %d didn't come within %v: %v", burst, i, n, patience, err)
			}
			if _, got := numberOf(f); got != seq-uint32(n)+i {
				t.Fatalf("burst %d: frame %d came, want %d", burst, got, seq-uint32(n)+i)
			}
		}
	}
}
