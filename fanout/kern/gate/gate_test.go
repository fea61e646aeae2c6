package gate

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/netns"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("EPAIR_REQUIRE") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

// cable makes a veth pair, both sides in one namespace, and returns a packet socket there.
func cable(t *testing.T) (ends [2]kern.Device, sock int) {
	t.Helper()
	ns, err := netns.NewAnonymous()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	err = ns.Do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		for i, name := range []string{"a", "b"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				return err
			}
			ends[i] = kern.Device{NetNS: ns.FD(), Ifindex: l.Attrs().Index, Name: name}
		}
		sock, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(sock) })
	return ends, sock
}

// sent is how many frames a device has sent.
func sent(t *testing.T, d kern.Device) (n uint64) {
	t.Helper()
	err := netns.Do(d.NetNS, func() error {
		l, err := netlink.LinkByIndex(d.Ifindex)
		if err == nil {
			n = l.Attrs().Statistics.TxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// While it's shut the gate stops all frames, and counts each with its length; when it's open it counts none.
func TestGate(t *testing.T) {
	needRoot(t)
	ends, sock := cable(t)
	send := func(d kern.Device, frames int) {
		for range frames {
			_ = unix.Sendto(sock, make([]byte, 100), 0, &unix.SockaddrLinklayer{Ifindex: d.Ifindex}) // ENOBUFS if it's stopped
		}
	}
	g, err := New(ends)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var want [2]Count
	for round, step := range []func() error{g.Open, g.Shut, g.Open, g.Shut, g.Detach} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		shut := round == 1 || round == 3
		for i, d := range ends {
			frames := 10 + i
			before := sent(t, d)
			send(d, frames)
			passed := sent(t, d) - before
			if shut {
				want[i].Frames += uint64(frames)
				want[i].Bytes += uint64(100 * frames)
			}
			if shut != (passed == 0) || !shut && passed != uint64(frames) {
				t.Errorf("round %d: %d of %d frames passed", round, passed, frames)
			}
		}
		if got, err := g.Dropped(); err != nil || got != want {
			t.Errorf("round %d: %v, %v, want %v", round, got, err, want)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}
