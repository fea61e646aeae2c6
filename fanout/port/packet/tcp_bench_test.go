package packet

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/fanout/port/porttest"
)

// BenchmarkTCPAgainstBridge interleaves one TCP stream through our forwarder with one through
// a Linux bridge between the same hosts. Everything shares the machine's CPUs, as it does in use.
func BenchmarkTCPAgainstBridge(b *testing.B) {
	for round := range 5 {
		for _, what := range []string{"epair", "bridge"} {
			b.Run(fmt.Sprintf("round=%d/%s", round, what), func(b *testing.B) {
				w := newWorld(b, 1500, 64)
				addr(b, w.a.InnerNS, w.a.Inner, addrA+"/24")
				addr(b, w.b.InnerNS, w.b.Inner, addrB+"/24")
				if what == "epair" {
					w.start(b, 0)
				} else {
					bridge(b, w)
				}
				for b.Loop() {
					b.ReportMetric(stream(b, w)*8/trial.Seconds()/1e9, "Gbit/s")
				}
			})
		}
	}
}

// bridge joins the outer sides by a Linux bridge.
func bridge(b *testing.B, w *world) {
	b.Helper()
	err := w.outer.Do(func() error {
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		for _, v := range []*porttest.Veth{w.a, w.b} {
			l, err := netlink.LinkByName(v.Outer)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(l, br); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(br)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// stream sends by TCP from a to b for one trial and returns how many bytes arrived.
func stream(b *testing.B, w *world) (arrived float64) {
	b.Helper()
	var l net.Listener
	if err := w.b.InnerNS.Do(func() (err error) { l, err = net.Listen("tcp4", addrB+":0"); return err }); err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	total := make(chan float64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			total <- 0
			return
		}
		defer c.Close()
		buf, sum := make([]byte, 256<<10), 0.0
		for {
			n, err := c.Read(buf)
			if sum += float64(n); err != nil {
				total <- sum
				return
			}
		}
	}()
	var c net.Conn
	err := w.a.InnerNS.Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 128<<10)
	for start := time.Now(); time.Since(start) < trial; {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	_ = c.Close()
	return <-total
}
