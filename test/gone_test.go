package test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/netns"
)

//	a: flood ── e0 ── epair ── e0 ── b, which is deleted meanwhile
//	c: ask ──── e0 ── epair ── e0 ── d: echo, the same workers

// An end that is deleted under traffic, by itself or with its namespace, makes its own pair
// "gone". The pair beside it loses nothing, and the ledgers of both still balance.
func TestFarEndDeleted(t *testing.T) {
	needRoot(t)
	for _, c := range cells() {
		for _, what := range []string{"link", "namespace"} {
			t.Run(c.String()+"/"+what, func(t *testing.T) { deleteUnderTraffic(t, c, what) })
		}
	}
}

func deleteUnderTraffic(t *testing.T, c cell, what string) {
	cfg := c.config("")
	beside := cfg.Pairs[0]
	beside.Name = "q"
	beside.A.Netns, beside.A.Addresses = nsName("c"), []string{"10.67.0.1/24"}
	beside.B.Netns, beside.B.Addresses = nsName("d"), []string{"10.67.0.2/24"}
	cfg.Pairs = append(cfg.Pairs, beside)
	d := start(t, cfg)
	stop := make(chan struct{})
	flooded := flood(t, stop)
	ask := echoBetween(t, "c", "d", "10.67.0.2:0")
	pair := func() control.Pair {
		p, ok := d.Pair("p")
		if !ok {
			t.Fatal("the pair isn't listed any more")
		}
		return p
	}
	// until asks the pair beside, over and over, until something is so.
	until := func(what string, so func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !so(); {
			ask()
			if time.Now().After(end) {
				t.Fatalf("waited for %s in vain: %+v", what, pair())
			}
		}
	}
	until("traffic", func() bool { return pair().AB.Tx > 500 })
	drops := func() string {
		q, _ := d.Pair("q")
		return fmt.Sprint(q.State, q.AB.Drops, q.BA.Drops)
	}
	before := drops() // a mode that is set once the ends are up costs what they send in that moment
	if what == "namespace" {
		if err := netns.Delete(nsName("b")); err != nil {
			t.Fatal(err)
		}
	} else {
		inNS(t, "b", func() error {
			l, err := netlink.LinkByName("e0")
			if err != nil {
				return err
			}
			return netlink.LinkDel(l)
		})
	}
	until("its state", func() bool { return pair().State == epair.Gone.String() })
	for range 200 {
		ask()
	}
	close(stop)
	<-flooded
	if after := drops(); after != before || !strings.HasPrefix(after, epair.Up.String()) {
		t.Errorf("the pair beside: %s, before %s", after, before)
	}
}

// flood sends datagrams from a to b until stop is closed, and then closes the result.
// What becomes of them is not its business.
func flood(t *testing.T, stop <-chan struct{}) (done chan struct{}) {
	t.Helper()
	var a net.Conn
	inNS(t, "a", func() (err error) { a, err = net.Dial("udp", "10.66.0.2:9"); return err })
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer a.Close()
		for i := 0; ; i++ {
			_, _ = a.Write(make([]byte, i%1400))
			if i%32 != 0 {
				continue
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond): // the pair beside shares the workers
			}
		}
	}()
	return done
}

// echoBetween returns what sends one datagram to an echo server and waits for it to come back.
func echoBetween(t *testing.T, from, at, addr string) (ask func()) {
	t.Helper()
	var server net.PacketConn
	var c net.Conn
	inNS(t, at, func() (err error) { server, err = net.ListenPacket("udp", addr); return err })
	t.Cleanup(func() { server.Close() })
	inNS(t, from, func() (err error) { c, err = net.Dial("udp", server.LocalAddr().String()); return err })
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			n, peer, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], peer)
		}
	}()
	number, buf := byte(0), make([]byte, 64)
	return func() {
		t.Helper()
		number++
		if _, err := c.Write([]byte{number}); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := c.Read(buf); err != nil || n != 1 || buf[0] != number {
			t.Fatalf("the pair beside lost a datagram: %d bytes, %v", n, err)
		}
	}
}
