package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestReadHere(t *testing.T) {
	f := Read("v1")
	if f.Kernel == "" || f.Go == "" || f.CPUs == "" || f.Version != "v1" || f.MemoryKB == 0 || f.MaxProcs < 1 {
		t.Errorf("missing facts: %+v", f)
	}
}

func TestReadMadeUp(t *testing.T) {
	root := t.TempDir()
	put(t, root, "proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU\nflags\t: fpu hypervisor sse\n")
	put(t, root, "proc/meminfo", "MemTotal:       4096 kB\n")
	put(t, root, "sys/devices/system/cpu/vulnerabilities/good", "Not affected\n")
	put(t, root, "sys/devices/system/cpu/vulnerabilities/bad", "Mitigation: slow\n")
	put(t, root, "proc/sys/net/core/netdev_budget", "300\n")
	f := read(root, "")
	if f.CPUModel != "Some CPU" || !f.Hypervisor || f.MemoryKB != 4096 {
		t.Errorf("%+v", f)
	}
	if len(f.Mitigations) != 1 || f.Mitigations["bad"] != "Mitigation: slow" || f.Sysctls["net.core.netdev_budget"] != "300" {
		t.Errorf("%v %v", f.Mitigations, f.Sysctls)
	}
}

func put(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// putProc writes a process whose name would confuse a careless reader.
func putProc(t *testing.T, root string, pid, parent int, flags, ticks uint64) {
	t.Helper()
	put(t, root, fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (a ) S 9) S %d 1 1 0 -1 %d 0 0 0 0 %d 1 %d 0", pid, parent, flags, ticks-3, 2))
}

func TestNoise(t *testing.T) {
	root := t.TempDir()
	put(t, root, "proc/self/cgroup", "0::/x\n")
	// Process 22 ends meanwhile: its parent, 20, has its time then.
	putProc(t, root, 22, 20, 0, 40)
	state := func(idle, steal, own, child, other, kernel, throttled uint64) {
		put(t, root, "proc/stat", fmt.Sprintf("cpu 100 0 100 %d 0 0 0 %d 0 0\n", idle, steal))
		putProc(t, root, 10, 1, 0, own)
		putProc(t, root, 11, 10, 0, child)
		putProc(t, root, 20, 1, 0, other)
		putProc(t, root, 2, 0, pfKthread, kernel)
		put(t, root, "sys/fs/cgroup/x/cpu.stat", fmt.Sprintf("nr_throttled 1\nthrottled_usec %d\n", throttled))
	}
	state(1000, 10, 5, 5, 5, 5, 1000)
	w, err := newWatch(root, 10)
	if err != nil {
		t.Fatal(err)
	}
	state(1980, 30, 305, 205, 55+60, 405, 5000)
	if err := os.RemoveAll(filepath.Join(root, "proc/22")); err != nil {
		t.Fatal(err)
	}
	putProc(t, root, 21, 1, 0, 100) // began meanwhile
	n, err := w.Noise()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Noise{StealPercent: 2, ForeignPercent: 17, ThrottledMs: 4}); n != want {
		t.Errorf("got %+v, want %+v", n, want)
	}
}

func TestMalformedStat(t *testing.T) {
	for _, s := range []string{"", "cpu 1 2 3\n", "cpu a 0 0 0 0 0 0 0\n", "cpu0 1 1 1 1 1 1 1 1\n"} {
		if _, _, err := totals(s); err == nil {
			t.Errorf("%q: read", s)
		}
	}
	for _, s := range []string{"", "1 (x) S", "1 (x) S x 0 0 0 0 0 0 0 0 0 0 0 0"} {
		if _, ok := parseProc(s); ok {
			t.Errorf("%q: read", s)
		}
	}
}
