package epair

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// In mode pool there is a queue for each worker. All but the first can be attached.
func TestTAPQueues(t *testing.T) {
	env := newEnv(t, EnvConfig{Queues: 3})
	for _, c := range []struct {
		mode, port string
		more       int
	}{{"pool", "packet", 2}, {"pool", "xdp", 0}, {"inline", "packet", 0}} {
		cfg := tapPair("q"+c.mode+c.port, "tq"+c.mode+c.port)
		cfg.Mode, cfg.Port = c.mode, c.port
		p := createUp(t, env, cfg)
		more := p.A.TapQueues()
		if len(more) != c.more || len(p.B.TapQueues()) != 0 {
			t.Errorf("%s, port %s: further queues %v, of a veth %v", c.mode, c.port, more, p.B.TapQueues())
		}
		// 256 disciplines with room for thousands of frames each would take 6 MiB.
		in(t, "tq"+c.mode+c.port, func(h *netlink.Handle) error {
			qs, err := h.QdiscList(at(p.A.InnerIndex()))
			if err == nil && (len(qs) != 1 || (qs[0].Type() == "noqueue") != (c.more > 0)) {
				t.Errorf("%s, port %s: queueing disciplines %v", c.mode, c.port, qs)
			}
			return err
		})
		for _, fd := range more {
			req := must(unix.NewIfreq(""))
			if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil || req.Name() != "tap0" || req.Uint16()&unix.IFF_DETACH_QUEUE == 0 {
				t.Errorf("queue of %q has flags %#x: %v", req.Name(), req.Uint16(), err)
			}
			req.SetUint16(unix.IFF_ATTACH_QUEUE)
			if err := unix.IoctlIfreq(fd, unix.TUNSETQUEUE, req); err != nil {
				t.Errorf("attach: %v", err)
			}
		}
		if err := p.Delete(); err != nil {
			t.Fatal(err)
		}
		for _, fd := range more {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("queue %d is open after the end: %v", fd, err)
			}
		}
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
	env.tun = "/dev/null"
	if _, err := Create(tapPair("notun", "tc"), env); err == nil || !strings.Contains(err.Error(), "/dev/null is another device (make it anew: mknod") {
		t.Errorf("another device: %v", err)
	}
}
