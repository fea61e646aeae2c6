package tap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// BenchmarkForward is what one thread needs to take a frame from one TAP and give it to another, whose
// stack throws it away. Making the frames isn't in it.
func BenchmarkForward(b *testing.B) {
	gso, hdrLen, start := segmented(62 << 10)
	tcp := porttest.NewHdr(porttest.NeedsCsum, porttest.GSOTCP4, hdrLen, 1448, start, 16)
	for _, c := range []struct {
		name  string
		hdr   porttest.Hdr
		frame []byte
		batch int
	}{
		{"64B", porttest.Hdr{}, numbered(0, 1, 60), port.MaxBatch}, // 64 with the check sequence
		{"1518B", porttest.Hdr{}, numbered(0, 1, 1514), port.MaxBatch},
		{"62KB", tcp, gso, port.MaxBatch},
		{"62KB/8-a-time", tcp, gso, 8}, // they stay in the second-level cache from read to write
	} {
		b.Run(c.name, func(b *testing.B) { forwardBursts(b, c.hdr, c.frame, c.batch) })
	}
}

func forwardBursts(b *testing.B, h porttest.Hdr, f []byte, size int) {
	const burst = 512 // half a ring
	from, to := newTAP(b, "tap0", 1500), newTAP(b, "tap0", 1500)
	w := port.Worker{Arena: newArena(b, 4*port.MaxBatch)}
	rx, _ := from.open(b, w, 1500)
	_, tx := to.open(b, w, 1500)
	far := from.far(b)
	batch := make([]port.Frame, size)
	var spent time.Duration
	var sent uint64
	var got port.Tally
	b.ReportAllocs()
	for b.Loop() {
		for range burst {
			if err := far.Send(&h, f); err != nil {
				b.Fatal(err)
			}
			sent++
		}
		start := time.Now()
		for n := len(batch); n == len(batch); {
			var err error
			if n, err = rx.Receive(batch); err != nil {
				b.Fatal(err)
			}
			tx.Send(rx, batch[:n], &got)
		}
		spent += time.Since(start)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(spent.Nanoseconds())/float64(got.Frames), "ns/frame")
	b.ReportMetric(1-float64(got.Frames)/float64(sent), "loss")
}

// BenchmarkTCP compares one stream through two TAPs with the same through a Linux bridge, in
// turns.
//
//	namespace 1                                namespace 2
//	10.0.0.1 tap0 ──── forwarder ──── tap0 10.0.0.2
//	10.0.1.1 veth ────    br0    ──── veth 10.0.1.2
func BenchmarkTCP(b *testing.B) {
	const rounds, each, mtu = 7, 500 * time.Millisecond, 1500
	// As a pool does: the forwarder mustn't keep the sockets' goroutines from running.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
	one, two, f := newHosts(b, mtu)
	newBridge(b, one.ns, two.ns, mtu)
	var tap, bridge, ratio []float64
	for b.Loop() {
		for range rounds {
			x, y := gbps(b, one.ns, two.ns, addrB, each), gbps(b, one.ns, two.ns, "10.0.1.2", each)
			tap, bridge, ratio = append(tap, x), append(bridge, y), append(ratio, x/y)
		}
	}
	f.halt(b)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(tap), "Gbit/s")
	b.ReportMetric(median(bridge), "bridge-Gbit/s")
	b.ReportMetric(median(ratio), "ratio")
	b.ReportMetric(slices.Min(ratio), "min-ratio")
	b.ReportMetric(slices.Max(ratio), "max-ratio")
	b.ReportMetric(float64(f.tally[0].Bytes)/float64(f.tally[0].Frames), "B/frame")
	lost := f.rx[0].Stats().Drops
	lost.Add(&f.tally[0].Drops)
	b.ReportMetric(float64(lost.Total()), "lost")
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// newBridge joins two namespaces by a bridge in a third.
func newBridge(b *testing.B, one, two *porttest.NS, mtu int) {
	b.Helper()
	sw := porttest.NewNS(b)
	err := sw.Do(func() error {
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: mtu, TxQLen: -1}}
		return errors.Join(netlink.LinkAdd(br), netlink.LinkSetUp(br))
	})
	if err != nil {
		b.Fatalf("make bridge: %v", err)
	}
	for i, ns := range []*porttest.NS{one, two} {
		v := porttest.NewVeth(b, sw, ns, fmt.Sprintf("v%d", i), mtu, 1)
		err := sw.Do(func() error {
			br, err := netlink.LinkByName("br0")
			if err != nil {
				return err
			}
			l, err := netlink.LinkByName(v.Outer)
			if err != nil {
				return err
			}
			return netlink.LinkSetMaster(l, br)
		})
		if err != nil {
			b.Fatalf("put %s into the bridge: %v", v.Outer, err)
		}
		addAddr(b, ns, v.Inner, fmt.Sprintf("10.0.1.%d/24", i+1))
	}
}

// gbps sends one stream for d and returns what arrived.
func gbps(b *testing.B, from, to *porttest.NS, addr string, d time.Duration) float64 {
	b.Helper()
	out, in := connect(b, from, to, addr)
	defer out.Close()
	defer in.Close()
	start := time.Now()
	sent := make(chan error, 1)
	go func() { sent <- sendFor(out, d) }()
	var total int
	buf := make([]byte, 256<<10)
	for {
		n, err := in.Read(buf)
		total += n
		if err == io.EOF {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
	return float64(total) * 8 / time.Since(start).Seconds() / 1e9
}

func sendFor(c *net.TCPConn, d time.Duration) error {
	buf := make([]byte, 128<<10)
	for start := time.Now(); time.Since(start) < d; {
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	return c.CloseWrite()
}
