package skb

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
)

// eachCell runs a test in every topology and mode that exists.
func eachCell(t *testing.T, fn func(t *testing.T, path string, mode kern.Mode)) {
	for _, path := range paths {
		for _, mode := range []kern.Mode{kern.Inline, kern.Pool, kern.Poller} {
			if path == "tc-dev" && mode == kern.Pool || path != "direct" && path != "tc" && mode == kern.Poller {
				continue
			}
			t.Run(path+"/"+string(mode), func(t *testing.T) { fn(t, path, mode) })
		}
	}
}

// Frames arrive as they were sent, with the packet type that a veth gives, in both directions.
func TestFrames(t *testing.T) {
	foreign := net.HardwareAddr{2, 0, 0, 0, 9, 9}
	eachCell(t, func(t *testing.T, path string, mode kern.Mode) {
		l := newLab(t, path, mode)
		for dir, hosts := range [][2]*host{{&l.a, &l.b}, {&l.b, &l.a}} {
			from, to := hosts[0], hosts[1]
			tx, rx := from.socket(t, 0), to.socket(t, unix.ETH_P_ALL)
			sent := uint64(0)
			for _, c := range []struct {
				name string
				dst  net.HardwareAddr
				typ  uint8
			}{
				{"own", to.mac, unix.PACKET_HOST},
				{"foreign", foreign, unix.PACKET_OTHERHOST},
				{"broadcast", net.HardwareAddr{255, 255, 255, 255, 255, 255}, unix.PACKET_BROADCAST},
				{"multicast", net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}, unix.PACKET_MULTICAST},
			} {
				for flow := range uint32(20) {
					f := frame(c.dst, from.mac, flow, 7, 60+37*int(flow))
					exchange(t, fmt.Sprintf("%d %s %d", dir, c.name, flow), tx, rx, f, c.typ)
					sent++
				}
			}
			sent += tags(t, tx, rx, frame(to.mac, from.mac, 1, 2, 100))
			led := l.balance(dir, sent)
			if led.Tx != sent || led.Unsteered != 0 {
				t.Errorf("direction %d: sent %d, %s", dir, sent, show(led))
			}
		}
	})
}

// exchange sends a frame and expects it.
func exchange(t *testing.T, name string, tx, rx int, f []byte, typ uint8) {
	t.Helper()
	if _, err := unix.Write(tx, f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	buf := make([]byte, 2048)
	n, from, err := receive(rx, buf, 5*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !bytes.Equal(buf[:n], f) {
		t.Errorf("%s: sent\n%x, got\n%x", name, f, buf[:n])
	}
	if from.Pkttype != typ {
		t.Errorf("%s: packet type %d, want %d", name, from.Pkttype, typ)
	}
}

// What can't be is refused, with the reason.
func TestRefused(t *testing.T) {
	dev := newLab(t, "tc-dev", kern.Inline)
	if _, err := dev.c.SetMode(kern.Pool); !errors.Is(err, kern.ErrRefused) {
		t.Errorf("pool between devices: %v", err)
	}
	tc, direct := devices(t, "tc", 1500), devices(t, "direct", 1500)
	p := newPolicy(t)
	for _, c := range []struct {
		name string
		make func(kern.Config) (kern.Crossing, error)
		cfg  kern.Config
	}{
		{"direct with outer sides", NewDirect, tc.cfg},
		{"tc without outer sides", NewTC, direct.cfg},
		{"tc over two namespaces", NewTC, kern.Config{
			A: kern.End{Outer: direct.cfg.A.Inner}, B: kern.End{Outer: direct.cfg.B.Inner},
		}},
	} {
		c.cfg.Name, c.cfg.Mode, c.cfg.Policy = "refused", kern.Inline, p
		if _, err := c.make(c.cfg); !errors.Is(err, kern.ErrRefused) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
