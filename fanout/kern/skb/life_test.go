package skb

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/ethtool"
)

func attached(t *testing.T, h *host, at ebpf.AttachType) int {
	t.Helper()
	n := 0
	err := h.ns.Do(func() error {
		r, err := link.QueryPrograms(link.QueryOptions{Target: h.index, Attach: at})
		if err == nil {
			n = len(r.Programs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func features(t *testing.T, h *host) (all map[string]ethtool.Feature) {
	t.Helper()
	if err := h.ns.Do(func() (err error) { all, err = ethtool.Features(h.name); return err }); err != nil {
		t.Fatal(err)
	}
	return all
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func rps(t *testing.T, d kern.Device) string {
	t.Helper()
	s, err := openSysfs(d.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	f, err := s.open(filepath.Join("class/net", d.Name, "queues/rx-0/rps_cpus"), os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	text, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A crossing that is closed leaves the devices as they were, and nothing open.
func TestCloseLeavesNothing(t *testing.T) {
	for _, path := range []string{"direct", "tc"} {
		t.Run(path, func(t *testing.T) {
			l := devices(t, path, 1500)
			l.cfg.Policy = newPolicy(t)
			if _, err := drainOf(l.cfg.Policy); err != nil { // the policy keeps it
				t.Fatal(err)
			}
			before, offloads := descriptors(t), features(t, &l.a)
			for i := range 9 {
				l.cfg.Mode = []kern.Mode{kern.Inline, kern.Pool, kern.Poller}[i%3]
				c := open(t, path, l.cfg)
				if err := errors.Join(c.Close(), c.Close()); err != nil {
					t.Fatal(err)
				}
				if _, err := c.SetMode(kern.Pool); !errors.Is(err, os.ErrClosed) {
					t.Errorf("closed crossing changes: %v", err)
				}
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, were %d", after, before)
			}
			if after := features(t, &l.a); !maps.Equal(after, offloads) {
				t.Errorf("offloads %v, were %v", after, offloads)
			}
			for _, h := range []*host{&l.a, &l.b} {
				for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
					if n := attached(t, h, at); n != 0 {
						t.Errorf("%d programs left at %s %v", n, h.name, at)
					}
				}
				if got := rps(t, h.device()); got != "0" {
					t.Errorf("RPS of %s is %s", h.name, got)
				}
			}
		})
	}
}

// RPS masks are put back as they were; RFS, which would override them, is refused.
func TestMasks(t *testing.T) {
	l := devices(t, "direct", 1500)
	s, err := openSysfs(l.b.ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	write := func(name, text string) {
		t.Helper()
		f, err := s.open(filepath.Join("class/net", l.b.name, "queues/rx-0", name), os.O_WRONLY)
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		if err := f.write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("rps_cpus", "1")
	l.cfg.Policy, l.cfg.Mode = newPolicy(t), kern.Inline
	c := open(t, "direct", l.cfg)
	if got := rps(t, l.b.device()); got != "0" {
		t.Errorf("inline with RPS %s", got)
	}
	write("rps_flow_cnt", "64")
	if _, err := c.SetMode(kern.Pool); !errors.Is(err, kern.ErrRefused) {
		t.Errorf("pool with RFS: %v", err)
	}
	write("rps_flow_cnt", "0")
	if _, err := c.SetMode(kern.Pool); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := rps(t, l.b.device()); got != "1" {
		t.Errorf("RPS after close is %s, was 1", got)
	}
}

// GRO would hide frames from the fence.
func TestGRORefused(t *testing.T) {
	l := newLab(t, "direct", kern.Inline)
	gro := func(on bool) {
		t.Helper()
		err := l.b.ns.Do(func() error {
			_, err := ethtool.SetFeatures(l.b.name, map[string]bool{"rx-gro": on})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	gro(true)
	if _, err := l.c.SetMode(kern.Pool); !errors.Is(err, kern.ErrRefused) {
		t.Errorf("pool with GRO: %v", err)
	}
	gro(false)
	if _, err := l.c.SetMode(kern.Pool); err != nil {
		t.Error(err)
	}
}

// What goes past the egress hook is delivered, and known as such.
func TestUnsteered(t *testing.T) {
	for _, path := range []string{"direct", "tc"} {
		t.Run(path, func(t *testing.T) {
			l := newLab(t, path, kern.Pool)
			tx, rx := l.a.socket(t, 0), l.b.socket(t, unix.ETH_P_ALL)
			send := func(n int) {
				for flow := range n {
					exchange(t, "unsteered", tx, rx, frame(l.b.mac, l.a.mac, uint32(flow), 1, 100), unix.PACKET_HOST)
				}
			}
			send(5)
			if err := unix.SetsockoptInt(tx, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
				t.Fatal(err)
			}
			send(10)
			if led := l.balance(0, 15); led.Unsteered != 10 || led.Tx != 15 {
				t.Error(show(led))
			}
		})
	}
}

// Frames to an end that is down are counted, whichever way they are lost; it works again when it's up again.
func TestDown(t *testing.T) {
	for _, path := range []string{"direct", "tc"} {
		for _, mode := range []kern.Mode{kern.Inline, kern.Pool} {
			t.Run(path+"/"+string(mode), func(t *testing.T) {
				l := newLab(t, path, mode)
				tx := l.a.socket(t, 0)
				f := frame(l.b.mac, l.a.mac, 1, 1, 100)
				if err := porttest.SetLink(l.b.ns, l.b.name, false); err != nil {
					t.Fatal(err)
				}
				for range 1000 {
					if _, err := unix.Write(tx, f); err != nil && !errors.Is(err, unix.ENOBUFS) {
						t.Fatal(err)
					}
				}
				led := l.balance(0, 1000)
				if led.Tx != 0 || led.Drops["backlog"]+led.Drops["peer_down"] != 1000 {
					t.Errorf("far end down: %s", show(led))
				}
				if err := porttest.SetLink(l.b.ns, l.b.name, true); err != nil {
					t.Fatal(err)
				}
				porttest.WaitRunning(t, l.b.ns, l.b.name)
				porttest.WaitRunning(t, l.a.ns, l.a.name)
				l.awaitOuter()
				rx := l.b.socket(t, unix.ETH_P_ALL)
				exchange(t, "up again", tx, rx, f, unix.PACKET_HOST)
				l.awaitMoved()
				if led := l.balance(0, 1001); led.Tx != 1 {
					t.Errorf("far end up again: %s", show(led))
				}
			})
		}
	}
}

// The packet type follows the far end's address when it changes.
func TestAddressChanges(t *testing.T) {
	l := newLab(t, "tc", kern.Inline)
	tx, rx := l.a.socket(t, 0), l.b.socket(t, unix.ETH_P_ALL)
	was, is := l.b.mac, net.HardwareAddr{2, 0, 0, 0, 0, 77}
	exchange(t, "old address", tx, rx, frame(was, l.a.mac, 1, 1, 100), unix.PACKET_HOST)
	err := l.b.ns.Do(func() error {
		d, err := netlink.LinkByName(l.b.name)
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(d, is)
	})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for end := time.Now().Add(5 * time.Second); ; {
		if _, err := unix.Write(tx, frame(was, l.a.mac, 1, 1, 100)); err != nil {
			t.Fatal(err)
		}
		_, from, err := receive(rx, buf, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if from.Pkttype == unix.PACKET_OTHERHOST {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the old address is still taken for the end's own")
		}
	}
	exchange(t, "new address", tx, rx, frame(is, l.a.mac, 1, 1, 100), unix.PACKET_HOST)
	if ab, _, err := l.c.Ledgers(); err != nil || ab.Imbalance() != 0 {
		t.Errorf("%s %v", show(ab), err)
	}
}
