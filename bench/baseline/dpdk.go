package baseline

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/netns"
)

// testpmd joins by DPDK's test program: io mode moves descriptors and looks at nothing. It polls, so its
// cores are busy at any rate.
func testpmd(driver string) middle {
	return func(ctx context.Context, o subject.Options, mid *netns.NS, _, _ topo.End, in, out string) (m subject.Made, err error) {
		path, err := find("dpdk-testpmd", "dpdk")
		if err != nil {
			return m, err
		}
		argv := testpmdArgs(path, driver, o.CPUs, in, out)
		p, err := start(ctx, mid, "Press enter to exit", argv...)
		if err != nil {
			return m, err
		}
		m.Closer, m.Commands = p, [][]string{argv}
		return m, nil
	}
}

// testpmdArgs gives each of two ports one queue, so two cores forward at most. The main core only waits: it shares
// the first forwarding CPU.
func testpmdArgs(path, driver string, cpus []int, in, out string) []string {
	if len(cpus) == 0 {
		cpus = []int{0}
	}
	cores := []string{fmt.Sprintf("0@%d", cpus[0])}
	n := min(len(cpus), 2)
	for i, c := range cpus[:n] {
		cores = append(cores, fmt.Sprintf("%d@%d", i+1, c))
	}
	argv := []string{
		path, "--no-huge", "--no-pci", "--in-memory", "-m", "256", "--no-telemetry",
		fmt.Sprintf("--file-prefix=epair-%d", os.Getpid()),
		"--lcores=" + strings.Join(cores, ","), "--main-lcore=0",
	}
	for i, name := range []string{in, out} {
		argv = append(argv, fmt.Sprintf("--vdev=%s%d,iface=%s", driver, i, name))
	}
	return append(argv, "--", "--forward-mode=io", fmt.Sprintf("--nb-cores=%d", n), "--total-num-mbufs=16384")
}
