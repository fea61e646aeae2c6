package baseline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
)

// testpmd joins by DPDK's test program: io mode moves descriptors and looks at nothing. It polls, so its
// cores are busy at any rate.
func testpmd(driver string) middle {
	return func(ctx context.Context, o subject.Options, e ends) (m subject.Made, err error) {
		path, err := find("dpdk-testpmd", "dpdk")
		if err == nil && o.MTU > testpmdMTU {
			err = fmt.Errorf("%w: testpmd's drivers carry an MTU of %d at most here, not %d (lower --size)", subject.ErrAbsent, testpmdMTU, o.MTU)
		}
		if err == nil {
			err = e.plain(o)
		}
		if err != nil {
			return m, err
		}
		// It leaves files in its runtime folder.
		dir, err := os.MkdirTemp("", "epair-dpdk-")
		if err != nil {
			return m, err
		}
		folder := closeFunc(func() error { return os.RemoveAll(dir) })
		argv := testpmdArgs(path, driver, o.CPUs)
		p, err := start(ctx, e.mid(), "Press enter to exit", []string{"RUNTIME_DIRECTORY=" + dir}, argv...)
		if err != nil {
			return m, errors.Join(err, folder.Close())
		}
		m.Closer, m.Commands = closers{folder, p}, [][]string{argv}
		return m, nil
	}
}

// testpmdMTU is for what its buffers of 2 KiB, as both drivers use them, hold.
const testpmdMTU = 1500

// testpmdArgs gives each of two ports one queue, so two cores forward at most. The main core only waits: it shares
// the first forwarding CPU. Its output must come line by line, for us to see when it is ready.
func testpmdArgs(path, driver string, cpus []int) []string {
	if len(cpus) == 0 {
		cpus = []int{0}
	}
	cores := []string{fmt.Sprintf("0@%d", cpus[0])}
	n := min(len(cpus), 2)
	for i, c := range cpus[:n] {
		cores = append(cores, fmt.Sprintf("%d@%d", i+1, c))
	}
	argv := []string{
		"stdbuf", "-oL", path, "--no-huge", "--no-shconf", "--no-pci", "-m", "256", "--no-telemetry",
		"--lcores=" + strings.Join(cores, ","), "--main-lcore=0",
	}
	for i, name := range []string{topo.InName, topo.OutName} {
		argv = append(argv, fmt.Sprintf("--vdev=%s%d,iface=%s", driver, i, name))
	}
	return append(argv, "--", "--forward-mode=io", fmt.Sprintf("--nb-cores=%d", n), "--total-num-mbufs=16384")
}
