package epair

import (
	"bytes"
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

func tapPair(name, ns string) PairConfig {
	return PairConfig{
		Name: name,
		A:    EndConfig{Kind: TAP, Name: "tap0", Netns: ns, Addresses: []string{"10.1.0.1/24"}},
		B:    EndConfig{Kind: Veth, Name: "eth0", Netns: ns + "b"},
	}
}

func TestTAP(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	c := tapPair("tap", "ta")
	c.MTU = 4000
	p := createUp(t, env, c)
	e := p.A
	if e.State() != Up || e.Kind() != "tap" || e.NetnsFD() != -1 || e.MTU() != 4000 {
		t.Errorf("%s %s %d %d", e.State(), e.Kind(), e.NetnsFD(), e.MTU())
	}
	a := link(t, "ta", "tap0")
	if a.Index != e.InnerIndex() || a.Index != e.Ifindex() || a.MTU != 4000 || a.TxQLen != tapTxQLen || a.Alias != e.tag() || !bytes.Equal(a.HardwareAddr, e.MAC()) {
		t.Errorf("%+v", a)
	}
	in(t, "ta", func(h *netlink.Handle) error {
		addrs, err := h.AddrList(at(a.Index), netlink.FAMILY_V4)
		if err == nil && (len(addrs) != 1 || addrs[0].IPNet.String() != "10.1.0.1/24") {
			t.Errorf("addresses %v", addrs)
		}
		return err
	})
	f := features(t, "ta", "tap0")
	for _, name := range []string{"tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-udp-segmentation"} {
		if !f[name].On {
			t.Errorf("%s is off", name)
		}
	}
	checkTapFD(t, e)
	if links := linksIn(t, "ta"); len(links) != 2 {
		t.Errorf("links %v", links)
	}
}

// checkTapFD looks at the queue and sends a frame each way.
func checkTapFD(t *testing.T, e *End) {
	t.Helper()
	fd := e.TapFD()
	fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || fl&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x %v", fl, err)
	}
	req := must(unix.NewIfreq(""))
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil || req.Uint16()&tapFlags != tapFlags || req.Name() != "tap0" {
		t.Errorf("queue of %s has flags %#x: %v", req.Name(), req.Uint16(), err)
	}
	if n, err := unix.IoctlGetInt(fd, unix.TUNGETVNETHDRSZ); err != nil || n != vnetHdrLen {
		t.Errorf("header size %d %v", n, err)
	}
	out := arpRequest(e.MAC(), net.HardwareAddr{255, 255, 255, 255, 255, 255}, "10.1.0.1", "10.1.0.77")
	inject(t, "ta", "tap0", [][]byte{out})
	buf := make([]byte, 5000)
	waitFor(t, "the frame", func() bool {
		n, err := unix.Read(fd, buf) // the namespace sends frames of its own too
		return err == nil && n >= vnetHdrLen && bytes.Equal(buf[vnetHdrLen:n], out)
	})
	before, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Write(fd, append(make([]byte, vnetHdrLen), out...)); err != nil || n != vnetHdrLen+len(out) {
		t.Errorf("write: %d %v", n, err)
	}
	if after, err := e.Stats(); err != nil || after.RxFrames != before.RxFrames+1 {
		t.Errorf("counters %+v, were %+v: %v", after, before, err)
	}
}

// A port's duplicate of the queue doesn't keep the device.
func TestTAPDeletedWhilePortsAreOpen(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	p := createUp(t, env, tapPair("dup", "tb"))
	fd, err := unix.Dup(p.A.TapFD())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	named(t, "tb-other") // so that there is something to compare with
	if err := p.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Read(fd, make([]byte, 100)); !errors.Is(err, unix.EBADFD) {
		t.Errorf("read from the queue of a deleted tap: %v", err)
	}
	if p.A.TapFD() != -1 {
		t.Errorf("descriptor %d", p.A.TapFD())
	}
}

func TestTAPWithoutCloneDevice(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	env.tun = "/run/no-tun"
	before := world(t)
	_, err := Create(tapPair("notun", "tc"), env)
	want := "create pair notun: create tap tap0 in tc: open /run/no-tun: no such file or directory (make it: mknod /run/no-tun c 10 200, or load the tun module)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	same(t, before, world(t))
	// A device node without a driver.
	env.tun = "/run/dead-tun"
	if err := unix.Mknod(env.tun, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 254))); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(env.tun)
	if _, err := Create(tapPair("notun", "tc"), env); err == nil || !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENXIO) {
		t.Errorf("dead node: %v", err)
	}
}

// host: d0 ── d1        namespace guest: g0 ── g1
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

// Namespaces are shared: the last end takes what is ours with it, and nothing that isn't.
func TestSharedNamespaces(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	named(t, "theirs")
	first := create(t, env, vethPair("one", "ours", "theirs"))
	c := vethPair("two", "ours", "theirs")
	c.A.Name, c.B.Name = "eth1", "eth1"
	second := create(t, env, c)
	exists := func(ref string, want bool) {
		t.Helper()
		ns, err := netns.Open(ref)
		if err == nil {
			ns.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := first.Delete(); err != nil {
		t.Fatal(err)
	}
	exists("ours", true)
	if err := second.Delete(); err != nil {
		t.Fatal(err)
	}
	exists("ours", false)
	exists("theirs", true)

	// The operator deletes ours, and makes another of that name.
	third := create(t, env, vethPair("three", "ours", "theirs"))
	if err := netns.Delete("ours"); err != nil {
		t.Fatal(err)
	}
	named(t, "ours")
	if err := third.Delete(); err != nil {
		t.Error(err)
	}
	exists("ours", true)
}

// Nothing of ours keeps a namespace alive, or the interface of another in it.
func TestNamespaceDiesWhenItsOwnerSaysSo(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	named(t, "mortal")
	foreignVeth(t, "host", "wit0", "wit1") // the witness: it goes with its peer
	p := createUp(t, env, PairConfig{Name: "m", A: EndConfig{Kind: Veth, Name: "eth0", Netns: "mortal"}, B: EndConfig{Kind: TAP, Name: "tap0", Netns: "mortal"}})
	ns := must(netns.Open("mortal"))
	in(t, "host", func(h *netlink.Handle) error { return h.LinkSetNsFd(must(h.LinkByName("wit1")), ns.FD()) })
	ns.Close()
	if err := netns.Delete("mortal"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the namespace's end", func() bool { return len(linksIn(t, "host")) == 1 })
	waitFor(t, "both ends to be gone", func() bool { return p.A.State() == Gone && p.B.State() == Gone })
}
