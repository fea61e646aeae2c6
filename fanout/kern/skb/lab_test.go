package skb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// lab is a pair whose ends are in namespaces of their own, with the devices that a datapath has:
//
//	direct    a.name ═══ b.name
//	tc        a.name ═══ outer : outer ═══ b.name      or with an end that is a dev
//
// A dev end is the outer side of a veth of which the crossing doesn't know more.
type lab struct {
	t      *testing.T
	mid    *porttest.NS // of the outer sides; nil for direct
	path   string       // "direct", "tc", "tc-push", "tc-pull" or "tc-dev"
	a, b   host
	cfg    kern.Config
	policy *kern.Policy
	c      kern.Crossing
}

// host is what is at an end.
type host struct {
	ns    *porttest.NS
	name  string
	index int
	mac   net.HardwareAddr
}

// paths are all topologies.
var paths = []string{"direct", "tc", "tc-push", "tc-pull", "tc-dev"}

func needBPF(t testing.TB) {
	t.Helper()
	porttest.NewNS(t) // skips or fails without the privilege
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

func allowed(t testing.TB) []int {
	t.Helper()
	c, err := cpus.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newPolicy(t testing.TB) *kern.Policy {
	t.Helper()
	needBPF(t)
	h, err := rss.New(rss.Config{})
	if err != nil {
		t.Fatal(err)
	}
	on := allowed(t)
	p, err := kern.NewPolicy(h, table(t, "", len(on)), on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func table(t testing.TB, spec string, workers int) *rss.Table {
	t.Helper()
	tb, err := rss.ParseTable(spec, 128, workers)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

// devices makes the topology without a crossing.
func devices(t *testing.T, path string, mtu int) *lab {
	t.Helper()
	l := &lab{t: t, path: path}
	l.cfg.Name = "lab"
	l.a.ns, l.b.ns = porttest.NewNS(t), porttest.NewNS(t)
	if path == "direct" {
		v := porttest.NewVeth(t, l.a.ns, l.b.ns, "d", mtu, 1)
		l.a.name, l.b.name = v.Outer, v.Inner
		l.a.find(t)
		l.b.find(t)
		l.cfg.A, l.cfg.B = kern.End{Inner: l.a.device(), Owned: true}, kern.End{Inner: l.b.device(), Owned: true}
		return l
	}
	mid := porttest.NewNS(t)
	l.mid = mid
	for i, h := range []*host{&l.a, &l.b} {
		v := porttest.NewVeth(t, mid, h.ns, []string{"x", "y"}[i], mtu, 1)
		h.name = v.Inner
		h.find(t)
		outer := kern.Device{NetNS: mid.FD(), Ifindex: v.OuterIndex, Name: v.Outer}
		e := kern.End{Inner: h.device(), Outer: outer, Owned: true}
		if path == "tc-dev" || path == "tc-push" && i == 0 || path == "tc-pull" && i == 1 {
			e = kern.End{Outer: outer}
		}
		if i == 0 {
			l.cfg.A = e
		} else {
			l.cfg.B = e
		}
	}
	return l
}

func (h *host) device() kern.Device {
	return kern.Device{NetNS: h.ns.FD(), Ifindex: h.index, Name: h.name}
}

func (h *host) find(t testing.TB) {
	t.Helper()
	err := h.ns.Do(func() error {
		i, err := net.InterfaceByName(h.name)
		if err == nil {
			h.index, h.mac = i.Index, i.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// newLab makes the topology and the crossing.
func newLab(t *testing.T, path string, mode kern.Mode) *lab {
	t.Helper()
	l := devices(t, path, 1500)
	l.cross(mode)
	return l
}

func (l *lab) cross(mode kern.Mode) {
	l.t.Helper()
	l.policy = newPolicy(l.t)
	l.cfg.Mode, l.cfg.Policy = mode, l.policy
	l.c = open(l.t, l.path, l.cfg)
	l.t.Cleanup(func() {
		if err := l.c.Close(); err != nil {
			l.t.Error(err)
		}
	})
}

func open(t testing.TB, path string, cfg kern.Config) kern.Crossing {
	t.Helper()
	make := NewTC
	if path == "direct" {
		make = NewDirect
	}
	c, err := make(cfg)
	if ve := (*ebpf.VerifierError)(nil); errors.As(err, &ve) {
		t.Fatalf("%+v", ve)
	} else if err != nil {
		t.Fatal(err)
	}
	return c
}

// socket opens a packet socket at an end.
func (h *host) socket(t testing.TB, proto int) int {
	t.Helper()
	var fd int
	err := h.ns.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: h.index, Protocol: htons(proto)})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func htons(v int) uint16 { return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)}) }

// receive takes a frame, or says that none comes.
func receive(fd int, buf []byte, patience time.Duration) (n int, from *unix.SockaddrLinklayer, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(patience); ; {
		ready, err := unix.Poll(p, int(max(0, time.Until(end).Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ready == 0 {
			return 0, nil, errors.Join(err, errNone)
		}
		n, sa, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return 0, nil, err
		}
		return n, sa.(*unix.SockaddrLinklayer), nil
	}
}

var errNone = errors.New("no frame came")

// frame is a UDP frame of a flow, with its number.
func frame(dst, src net.HardwareAddr, flow, seq uint32, size int) []byte {
	f := make([]byte, size)
	copy(f, dst)
	copy(f[6:], src)
	f[12] = 0x08
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], []byte{192, 0, 2, 1})
	copy(ip[16:], []byte{198, 51, 100, 1})
	binary.BigEndian.PutUint16(ip[20:], uint16(1024+flow))
	binary.BigEndian.PutUint16(ip[22:], 9)
	binary.BigEndian.PutUint16(ip[24:], uint16(size-34))
	binary.BigEndian.PutUint32(ip[28:], flow)
	binary.BigEndian.PutUint32(ip[32:], seq)
	return f
}

// number returns flow and number of a frame.
func number(f []byte) (flow, seq uint32) {
	return binary.BigEndian.Uint32(f[42:]), binary.BigEndian.Uint32(f[46:])
}

// balance waits until a direction's ledger has so many frames, and checks that it balances.
func (l *lab) balance(dir int, rx uint64) kern.Ledger {
	l.t.Helper()
	var led kern.Ledger
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		ab, ba, err := l.c.Ledgers()
		if err != nil {
			l.t.Fatal(err)
		}
		if led = ab; dir == 1 {
			led = ba
		}
		if led.Rx == rx && led.Imbalance() == 0 && led.Queued == 0 {
			return led
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s: sent %d, ledger %s", l.path, rx, show(led))
		}
	}
}

func show(l kern.Ledger) string {
	return fmt.Sprintf("rx %d tx %d queued %d drops %v unsteered %d per cpu %v, imbalance %d", l.Rx, l.Tx, l.Queued, l.Drops, l.Unsteered, l.PerCPU, l.Imbalance())
}

// awaitOuter waits until the outer sides let frames through: the kernel does so a while after the carrier came.
func (l *lab) awaitOuter() {
	l.t.Helper()
	if l.mid == nil {
		return
	}
	porttest.WaitRunning(l.t, l.mid, l.cfg.A.Outer.Name)
	porttest.WaitRunning(l.t, l.mid, l.cfg.B.Outer.Name)
}
