package fake_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/fake"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// site is a forwarder with a raw socket at either end.
type site struct {
	*fake.Forwarder
	t       *testing.T
	in, out int
}

func newSite(t *testing.T, cfg fake.Config) *site {
	t.Helper()
	s := &site{t: t}
	tp, err := topo.Split(false, 1500, func(in, out topo.End) (_ io.Closer, err error) {
		cfg.NetNS, cfg.In, cfg.Out = in.NS.FD(), in.Index, out.Index
		s.Forwarder, err = fake.New(cfg)
		return s.Forwarder, err
	})
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN and CAP_NET_ADMIN)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tp.Close() })
	s.in, s.out = s.socket(tp.Load()), s.socket(tp.Sink())
	return s
}

func (s *site) socket(ns, ifindex int) (fd int) {
	s.t.Helper()
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	err := netns.Do(ns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: all}),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// send sends frames of one flow.
func (s *site) send(seqs ...uint32) {
	s.t.Helper()
	h := wire.Headers(1, 1, wire.MAC{2}, wire.MAC{2})[0]
	f := append(h[:], make([]byte, wire.MinSize-len(h))...)
	for _, seq := range seqs {
		binary.NativeEndian.PutUint32(f[44:], seq)
		if _, err := unix.Write(s.in, f); err != nil {
			s.t.Fatal(err)
		}
	}
}

// receive returns the sequence numbers of the next n frames.
func (s *site) receive(n int) (seqs []uint32) {
	s.t.Helper()
	buf := make([]byte, 2048)
	for len(seqs) < n {
		k, err := unix.Read(s.out, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			s.t.Fatalf("after %v: %v", seqs, err)
		}
		if st, ok := wire.Parse(buf[:k]); ok {
			seqs = append(seqs, st.Seq)
		}
	}
	return seqs
}

func count(n uint32) (seqs []uint32) {
	for i := range n {
		seqs = append(seqs, i+1)
	}
	return seqs
}

// What leaves is what was planned, frame by frame, seen by somebody else.
func TestFaultsAsPlanned(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  fake.Config
		want []uint32 // of 1 to 10
		l    fake.Ledger
	}{
		{"none", fake.Config{}, count(10), fake.Ledger{Sent: 10}},
		{"drop", fake.Config{DropEvery: 4}, []uint32{1, 2, 3, 5, 6, 7, 9, 10}, fake.Ledger{Sent: 8, Dropped: 2}},
		{"repeat", fake.Config{RepeatEvery: 5}, []uint32{1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10}, fake.Ledger{Sent: 12, Repeated: 2}},
		{"swap", fake.Config{SwapEvery: 3}, []uint32{1, 2, 4, 3, 5, 7, 6, 8, 10, 9}, fake.Ledger{Sent: 10, Swapped: 3}},
		{"swap the last", fake.Config{SwapEvery: 10}, count(10), fake.Ledger{Sent: 10}},
		{"all", fake.Config{DropEvery: 4, RepeatEvery: 5, SwapEvery: 3}, []uint32{1, 2, 5, 5, 3, 7, 6, 10, 10, 9}, fake.Ledger{Sent: 10, Dropped: 2, Repeated: 2, Swapped: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, c.cfg)
			s.send(count(10)...)
			if got := s.receive(len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			c.l.Taken = 10
			for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				l, err := s.Ledger()
				if err != nil {
					t.Fatal(err)
				}
				l.First, l.Last = time.Time{}, time.Time{}
				if l == c.l {
					break
				}
				if time.Now().After(limit) {
					t.Fatalf("ledger %+v, want %+v", l, c.l)
				}
			}
		})
	}
}

func TestStopHoldsFramesBack(t *testing.T) {
	const stop = 100 * time.Millisecond
	s := newSite(t, fake.Config{})
	begin := time.Now()
	s.Stop(stop)
	s.send(1, 2, 3)
	if got := s.receive(3); !slices.Equal(got, count(3)) || time.Since(begin) < stop {
		t.Errorf("%v after %s", got, time.Since(begin))
	}
}

func TestFullQueueLoses(t *testing.T) {
	s := newSite(t, fake.Config{Queue: 2})
	s.Stop(300 * time.Millisecond)
	s.send(count(10)...)
	got := s.receive(2)
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := s.Ledger()
		if err != nil {
			t.Fatal(err)
		}
		if l.Taken == 10 && l.Sent+l.Overflow == 10 {
			if l.Overflow == 0 && len(got) == 2 && l.Sent == 10 {
				t.Skip("frames came after the stop: the machine is too busy")
			}
			if l.Sent > 10 || l.Overflow < 1 {
				t.Errorf("%+v", l)
			}
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%+v", l)
		}
	}
}

func TestCloseIsIdempotentAndPrompt(t *testing.T) {
	s := newSite(t, fake.Config{Delay: time.Hour})
	s.send(1, 2, 3)
	begin := time.Now()
	if err := errors.Join(s.Close(), s.Close()); err != nil || time.Since(begin) > 30*time.Second {
		t.Errorf("closed in %s: %v", time.Since(begin), err)
	}
	if _, err := fake.New(fake.Config{NetNS: -1}); err == nil {
		t.Error("made in no namespace")
	}
}
