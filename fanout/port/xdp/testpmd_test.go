package xdp

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// startTestpmd runs DPDK's testpmd between two net_af_xdp devices, its worker on workCPU.
func startTestpmd(t testing.TB, w *world) running {
	bin, err := exec.LookPath("dpdk-testpmd")
	if err != nil {
		t.Skip("dpdk-testpmd isn't installed")
	}
	cmd := exec.Command(bin, "--no-huge", "--no-pci", "-m", "512", "--no-telemetry", "--file-prefix", fmt.Sprintf("epair%p", w),
		"-l", fmt.Sprintf("%d,%d", loadCPU, workCPU), "--main-lcore", fmt.Sprint(loadCPU),
		"--vdev=net_af_xdp0,iface="+w.veth[0].Outer, "--vdev=net_af_xdp1,iface="+w.veth[1].Outer,
		"--", "--forward-mode=io", "--auto-start", "--total-num-mbufs=20000", "-i")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.outer.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "testpmd to attach", func() bool {
		attached := 0
		_ = w.outer.Do(func() error {
			for _, v := range w.veth {
				if l, err := netlink.LinkByName(v.Outer); err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
					attached++
				}
			}
			return nil
		})
		return attached == 2
	})
	return running{workerOf(t, cmd.Process.Pid), func() {
		fmt.Fprintln(stdin, "quit")
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("testpmd: %v\n%s", err, out.Bytes())
		}
	}}
}

// workerOf finds the thread that forwards.
func workerOf(t testing.TB, pid int) string {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if name, err := os.ReadFile(d + "/comm"); err == nil && strings.Contains(string(name), "worker") {
			return d
		}
	}
	t.Fatal("testpmd has no worker thread")
	return ""
}
