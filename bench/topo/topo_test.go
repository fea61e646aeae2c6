package topo

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/ethtool"
)

func need(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN and CAP_NET_ADMIN)")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

type closer struct{ closed int }

func (c *closer) Close() error { c.closed++; return nil }

func TestNothingStaysOpen(t *testing.T) {
	once := func() {
		bare, err := Bare(1500)
		need(t, err)
		side, err := Side(3, 1500)
		need(t, err)
		c := &closer{}
		split, err := Split(true, 1500, func(End, End) (io.Closer, error) { return c, nil })
		need(t, err)
		for range 2 {
			if err := errors.Join(bare.Close(), side.Close(), split.Close()); err != nil {
				t.Error(err)
			}
		}
		if c.closed != 1 {
			t.Errorf("what joined was closed %d times", c.closed)
		}
	}
	once() // the runtime opens some of its own
	before := descriptors(t)
	once()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestFailedJoinLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	ends := [2]End{}
	tp, err := Split(false, 1500, func(in, out End) (io.Closer, error) {
		ends = [2]End{in, out}
		return nil, broken
	})
	if err != nil && !errors.Is(err, broken) {
		need(t, err)
	}
	if tp != nil || !errors.Is(err, broken) {
		t.Errorf("made %v, %v", tp, err)
	}
	if err := ends[0].NS.Do(func() error { return nil }); err == nil {
		t.Error("the namespace is still open")
	}
}

// Ends are up, known by their names, quiet, and receive as they were asked to.
func TestEndsAreReady(t *testing.T) {
	var in, out End
	tp, err := Split(true, 3000, func(a, b End) (io.Closer, error) {
		in, out = a, b
		return &closer{}, nil
	})
	need(t, err)
	defer tp.Close()
	for name, e := range map[string]End{LoadName: tp.load, InName: in, OutName: out, SinkName: tp.sink} {
		err := e.NS.Do(func() error {
			l, err := netlink.LinkByIndex(e.Index)
			if err != nil {
				return err
			}
			a := l.Attrs()
			if a.Name != name || a.MTU != 3000 || a.RawFlags&unix.IFF_RUNNING == 0 || a.RawFlags&unix.IFF_NOARP == 0 {
				t.Errorf("%s: %+v", name, a)
			}
			if addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL); err != nil || len(addrs) != 0 {
				t.Errorf("%s: addresses %v, %v", name, addrs, err)
			}
			f, err := ethtool.Features(name)
			if gro := f["rx-gro"].On; err == nil && gro != (name == InName) {
				t.Errorf("%s: gro %t", name, gro)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
