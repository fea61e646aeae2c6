package xdp

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestSockets: TCP between the inner ends, with their checksum offload off and all else as it is by default.
// Attaching an XDP program takes segmentation offload away by itself.
func TestSockets(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p := w.open(t, PairConfig{})
	for i, addr := range []string{"10.9.0.1/24", "10.9.0.2/24"} {
		v := w.veth[i]
		ethtoolSet(t, v.InnerNS, "-K", v.Inner, "tx", "off")
		err := v.InnerNS.Do(func() error {
			a, err := netlink.ParseAddr(addr)
			if err != nil {
				return err
			}
			l, err := netlink.LinkByName(v.Inner)
			if err != nil {
				return err
			}
			return netlink.AddrAdd(l, a)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*reader{newReader(t, p.A, p.B, 1), newReader(t, p.B, p.A, 1)} {
		r.start(t)
	}
	data := make([]byte, 8<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	got := make(chan []byte, 1)
	ln := listen(t, w)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer c.Close()
		all, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		got <- all
	}()
	c := dial(t, w, ln.Addr().String())
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if all := <-got; !bytes.Equal(all, data) {
		t.Errorf("sent %d bytes, %d came", len(data), len(all))
	}
}

func listen(t *testing.T, w *world) (ln net.Listener) {
	t.Helper()
	err := w.veth[1].InnerNS.Do(func() (err error) { ln, err = net.Listen("tcp4", "10.9.0.2:0"); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func dial(t *testing.T, w *world, addr string) (c net.Conn) {
	t.Helper()
	err := w.veth[0].InnerNS.Do(func() (err error) { c, err = net.DialTimeout("tcp4", addr, patience); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
