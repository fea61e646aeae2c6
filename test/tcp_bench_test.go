package test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/netns"
)

// BenchmarkTCPAgainstBridge sends one TCP stream through a Linux bridge and through every user
// cell between the same two namespaces, in turn, five rounds or EPAIR_ROUNDS, and reports each
// cell's median and its median ratio to the bridge of the same round.
//
//	A ── veth ── bridge ── veth ── B
//	A ── end a ── worker ── end b ── B     one pair per cell
func BenchmarkTCPAgainstBridge(b *testing.B) {
	ctx := context.Background()
	nsA, nsB := benchName("a"), benchName("b")
	cells := []string{"bridge"}
	cfg := &epair.Config{Version: epair.Version}
	for _, kind := range []string{epair.Veth, epair.TAP} {
		for _, mode := range []string{"inline", "pool", "poller"} {
			i := len(cells)
			end := func(ns string, host int) epair.EndConfig {
				return epair.EndConfig{Kind: kind, Name: fmt.Sprintf("e%d", i), Netns: ns,
					Addresses: []string{fmt.Sprintf("10.77.%d.%d/24", i, host)}}
			}
			name := map[string]string{epair.Veth: "user-packet/", epair.TAP: "user-tap/"}[kind] + mode
			cells = append(cells, name)
			cfg.Pairs = append(cfg.Pairs, epair.PairConfig{Name: strings.ReplaceAll(name, "/", "-"), A: end(nsA, 1), B: end(nsB, 2),
				Datapath: "user", Mode: mode}.WithDefaults())
		}
	}
	d, err := control.Start(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	bridgeBetween(b, nsA, nsB)
	a, z := benchHost(b, nsA), benchHost(b, nsB)
	rounds := 5
	if s := os.Getenv("EPAIR_ROUNDS"); s != "" {
		if _, err := fmt.Sscan(s, &rounds); err != nil {
			b.Fatal(err)
		}
	}
	gbps, ratio := make([][]float64, len(cells)), make([][]float64, len(cells))
	for range rounds {
		for i := range cells {
			a.Addr = netip.AddrFrom4([4]byte{10, 77, byte(i), 1})
			z.Addr = netip.AddrFrom4([4]byte{10, 77, byte(i), 2})
			t, err := bench.TCP(ctx, a, z, time.Second)
			if err != nil {
				b.Fatalf("%s: %v", cells[i], err)
			}
			gbps[i] = append(gbps[i], t.Gbps())
			ratio[i] = append(ratio[i], t.Gbps()/gbps[0][len(gbps[0])-1])
		}
	}
	for i, c := range cells {
		slices.Sort(gbps[i])
		slices.Sort(ratio[i])
		b.Logf("%-20s Gbit/s %.1f (%.1f–%.1f)   to the bridge %.2f (%.2f–%.2f)", c, gbps[i][rounds/2], gbps[i][0], gbps[i][rounds-1],
			ratio[i][rounds/2], ratio[i][0], ratio[i][rounds-1])
		b.ReportMetric(ratio[i][rounds/2], c+"-ratio")
	}
}

func benchName(side string) string { return fmt.Sprintf("epair-bench-%d-%s", os.Getpid(), side) }

func benchHost(b *testing.B, name string) bench.Host {
	ns, err := netns.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ns.Close() })
	return bench.Host{NS: ns.FD()}
}

// bridgeBetween joins two namespaces by a bridge in a third, as an operator would.
func bridgeBetween(b *testing.B, nsA, nsB string) {
	nsC := benchName("br")
	b.Cleanup(func() { run(b, "ip netns del "+nsC) })
	for _, c := range []string{
		"ip netns add " + nsC,
		"ip -n " + nsC + " link add br0 type bridge",
		"ip -n " + nsC + " link set br0 up",
	} {
		run(b, c)
	}
	for i, ns := range []string{nsA, nsB} {
		run(b, fmt.Sprintf("ip -n %s link add p%d type veth peer name br-end netns %s", nsC, i, ns))
		run(b, fmt.Sprintf("ip -n %s link set p%d master br0 up", nsC, i))
		run(b, fmt.Sprintf("ip -n %s addr add 10.77.0.%d/24 dev br-end", ns, i+1))
		run(b, fmt.Sprintf("ip -n %s link set br-end up", ns))
	}
}

func run(tb testing.TB, command string) {
	tb.Helper()
	f := strings.Fields(command)
	if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v: %s", command, err, out)
	}
}
