package epair

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// TestDev:
//
//	host: d0 ── d1        namespace guest: g0 ── g1
func TestDev(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	foreignVeth(t, "host", "d0", "d1")
	guest := named(t, "guest")
	foreignVeth(t, guest, "g0", "g1")
	in(t, guest, func(h *netlink.Handle) error { return h.LinkSetMTU(must(h.LinkByName("g0")), 1400) })
	waitFor(t, "carriers", func() bool { return running(link(t, "host", "d0")) && running(link(t, guest, "g0")) })
	was := []*netlink.LinkAttrs{link(t, "host", "d0"), link(t, guest, "g0")}

	p := createUp(t, env, PairConfig{Name: "dev", A: EndConfig{Kind: Dev, Name: "d0"}, B: EndConfig{Kind: Dev, Name: "g0", Netns: guest}})
	if p.State() != Up || p.A.Ifindex() != was[0].Index || p.B.Ifindex() != was[1].Index || p.A.InnerIndex() != p.A.Ifindex() {
		t.Errorf("state %s, indexes %d %d", p.State(), p.A.Ifindex(), p.B.Ifindex())
	}
	if p.A.MTU() != 1500 || p.B.MTU() != 1400 || len(p.Warnings()) != 1 {
		t.Errorf("mtu %d %d, warnings %v", p.A.MTU(), p.B.MTU(), p.Warnings())
	}
	var found int
	err := netns.Do(p.B.NetnsFD(), func() error { i, err := net.InterfaceByName("g0"); found = i.Index; return err })
	if err != nil || found != p.B.Ifindex() {
		t.Errorf("in NetnsFD: index %d, %v", found, err)
	}
	if _, err := p.B.Stats(); err != nil {
		t.Error(err)
	}
	_, err = Create(PairConfig{Name: "again", A: EndConfig{Kind: Dev, Name: "g0", Netns: "/run/netns/guest"}, B: EndConfig{Kind: Veth, Name: "e", Netns: "gz"}}, env)
	if want := "create pair again: attach dev g0 in /run/netns/guest: it is an end of pair dev already"; err == nil || err.Error() != want {
		t.Errorf("twice: %v", err)
	}
	// A dev's mtu is that of the pair.
	q := create(t, env, PairConfig{Name: "q", A: EndConfig{Kind: Dev, Name: "g1", Netns: guest}, B: EndConfig{Kind: Veth, Name: "e", Netns: "gz"}, MTU: 0})
	if q.A.MTU() != q.B.MTU() || q.Config().MTU != q.A.MTU() {
		t.Errorf("mtu %d and %d", q.A.MTU(), q.B.MTU())
	}
	if err := env.DeleteAll(env.Pairs()); err != nil {
		t.Fatal(err)
	}
	for i, now := range []*netlink.LinkAttrs{link(t, "host", "d0"), link(t, guest, "g0")} {
		if now.Index != was[i].Index || now.RawFlags != was[i].RawFlags || now.MTU != was[i].MTU || now.Alias != "" {
			t.Errorf("dev changed: %+v, was %+v", now, was[i])
		}
	}
}

// What happens to an end's interface shows in its state.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		kind string
		a    EndConfig
	}{
		{"veth", EndConfig{Kind: Veth, Name: "x0", Netns: "sa"}},
		{"tap", EndConfig{Kind: TAP, Name: "x0", Netns: "sa"}},
		{"dev in a namespace", EndConfig{Kind: Dev, Name: "x0", Netns: "sa"}},
		{"dev of the host", EndConfig{Kind: Dev, Name: "x0"}},
	} {
		for _, end := range []string{"link", "namespace"} {
			if end == "namespace" && c.a.netns() == netns.Host {
				continue
			}
			t.Run(fmt.Sprint(c.kind, ", ", end, " deleted"), func(t *testing.T) {
				env := newEnv(t, EnvConfig{})
				ns := c.a.netns()
				if ns != netns.Host {
					named(t, ns)
				}
				if c.a.Kind == Dev {
					foreignVeth(t, ns, "x0", "x1")
					waitFor(t, "carrier", func() bool { return running(link(t, ns, "x0")) })
				}
				p := createUp(t, env, PairConfig{Name: "s", A: c.a, B: EndConfig{Kind: Veth, Name: "eth0", Netns: "sb"}})
				state := func(want State) {
					t.Helper()
					start := time.Now()
					waitFor(t, "state "+want.String(), func() bool { return p.A.State() == want })
					t.Logf("%s after %v", want, time.Since(start).Round(time.Millisecond))
					if p.B.State() != Up {
						t.Errorf("the other end is %s", p.B.State())
					}
				}
				state(Up)
				for range 3 {
					in(t, ns, func(h *netlink.Handle) error { return h.LinkSetDown(must(h.LinkByName("x0"))) })
					state(Down)
					in(t, ns, func(h *netlink.Handle) error { return h.LinkSetUp(must(h.LinkByName("x0"))) })
					state(Up)
				}
				if end == "link" {
					in(t, ns, func(h *netlink.Handle) error { return h.LinkDel(must(h.LinkByName("x0"))) })
				} else if err := netns.Delete(ns); err != nil {
					t.Fatal(err)
				}
				state(Gone)
				if p.State() != Gone {
					t.Errorf("pair is %s", p.State())
				}
				if err := p.A.SetOffloads(CarryVNet); c.a.Kind == Veth && !errors.Is(err, unix.ENODEV) {
					t.Errorf("set offloads: %v", err)
				}
				if err := p.Up(); c.a.Kind != Dev && !errors.Is(err, unix.ENODEV) {
					t.Errorf("up: %v", err)
				}
				if err := p.Delete(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// When Up returns, the very first frame passes, both ways.
func TestReadyMeansReady(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	for i := range 40 {
		p := createUp(t, env, vethPair(fmt.Sprint("r", i), "rya", "ryb"))
		frame := ping(p.A.MAC(), p.B.MAC(), "10.0.0.1", "10.0.0.2")
		inject(t, "rya", "eth0", [][]byte{frame})
		err := netns.Do(p.A.NetnsFD(), func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.B.Ifindex()})
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.A.Stats()
		if err != nil || s.RxFrames == 0 {
			t.Errorf("round %d: the frame didn't reach the outer side: %+v %v", i, s, err)
		}
		if s, err := p.B.Stats(); err != nil || s.TxFrames != 1 || s.TxDropped != 0 {
			t.Errorf("round %d: the frame didn't leave the outer side: %+v %v", i, s, err)
		}
		if err := p.Delete(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUpTimesOut(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	env.patient = 100 * time.Millisecond
	p := create(t, env, vethPair("dark", "da", "db"))
	if err := env.out.LinkSetDown(at(p.A.Ifindex())); err != nil {
		t.Fatal(err)
	}
	want := "set pair dark up: veth eth0 in da: no carrier for 100ms: connection timed out (has somebody set it down?)"
	if err := p.Up(); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// Up can be called again; an address that can't be set is an error that says why.
func TestUpAgainAndAddresses(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	c := vethPair("again", "ua", "ub")
	c.A.Addresses = []string{"10.0.0.1/24", "fd00::1/64"}
	p := createUp(t, env, c)
	if err := p.Up(); err != nil {
		t.Error(err)
	}
	ns, err := p.A.Space()
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) })
	if err := errors.Join(err, ns.Close()); err != nil {
		t.Fatal(err)
	}
	c.Name, c.A.Name, c.B.Name = "six", "eth1", "eth1"
	q := create(t, env, c)
	want := "set pair six up: veth eth1 in ua: add address fd00::1/64: IPv6 is disabled there (net.ipv6.conf.*.disable_ipv6)"
	if err := q.Up(); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := env.DeleteAll(env.Pairs()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.A.Space(); !errors.Is(err, unix.ENODEV) {
		t.Errorf("namespace of a deleted end: %v", err)
	}
}
