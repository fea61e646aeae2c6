package cpus

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	unified = "42 27 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	hybrid  = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	hybridOwn = "4:memory:/m\n3:cpuset:/s\n1:cpu,cpuacct:/u\n0::/x\n"
)

func machine(t *testing.T, files map[string]string, affinity ...int) Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{Root: root, Affinity: func() ([]int, error) { return slices.Clone(affinity), nil }}
}

func TestAllowedAndDefault(t *testing.T) {
	for _, c := range []struct {
		name              string
		files             map[string]string
		affinity          []int
		allowed, defaults string
	}{
		{"no cgroup at all", nil, []int{2, 0, 1}, "0-2", "0-2"},
		{"v2 without limits", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": unified,
			"sys/fs/cgroup/a/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpuset.cpus.effective": "0-7\n",
		}, []int{0, 1, 2, 3}, "0-3", "0-3"},
		{"v2 cpuset", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": unified,
			"sys/fs/cgroup/a/b/cpuset.cpus.effective": "1,3,9-11\n",
		}, []int{0, 1, 2, 3, 10}, "1,3,10", "1,3,10"},
		{"v2 quota, rounded up", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": unified,
			"sys/fs/cgroup/a/cpu.max": "150000 100000\n",
		}, []int{4, 5, 6, 7}, "4-7", "4-5"},
		{"v2 quota of a cgroup above", map[string]string{
			"proc/self/cgroup": "0::/pod/box\n", "proc/self/mountinfo": unified,
			"sys/fs/cgroup/pod/cpu.max": "200000 100000\n", "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
		}, []int{0, 1, 2, 3}, "0-3", "0-1"},
		{"a small quota still gives one", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": unified, "sys/fs/cgroup/cpu.max": "1000 100000\n",
		}, []int{0, 1}, "0-1", "0"},
		{"container without a cgroup namespace", map[string]string{
			"proc/self/cgroup":        "0::/docker/abc/sub\n",
			"proc/self/mountinfo":     "42 27 0:31 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			"sys/fs/cgroup/cpu.max":   "100000 100000\n",
			"sys/fs/cgroup/sub/dummy": "",
		}, []int{0, 1}, "0-1", "0"},
		{"cgroup outside of what is mounted", map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": unified, "sys/fs/cgroup/cpu.max": "100000 100000\n",
		}, []int{0, 1}, "0-1", "0-1"},
		{"the second mount is the whole", map[string]string{
			"proc/self/cgroup":    "0::/pod\n",
			"proc/self/mountinfo": "41 27 0:31 /po /mnt/other rw - cgroup2 cgroup rw\n" + unified,
			"mnt/other/cpu.max":   "1 1\n", "sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
		}, []int{0, 1, 2}, "0-2", "0-1"},
		{"v1", map[string]string{
			"proc/self/cgroup": hybridOwn, "proc/self/mountinfo": hybrid,
			"sys/fs/cgroup/cpuset/s/cpuset.effective_cpus":    "0-5\n",
			"sys/fs/cgroup/cpu,cpuacct/u/cpu.cfs_quota_us":    "250000\n",
			"sys/fs/cgroup/cpu,cpuacct/u/cpu.cfs_period_us":   "100000\n",
			"sys/fs/cgroup/unified/x/cpuset.cpus.effective":   "",
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes":    "1\n",
			"sys/fs/cgroup/cpu,cpuacct/u/cpuset.cpus":         "7\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":      "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":     "100000\n",
			"sys/fs/cgroup/cpuset/s/cpuset.cpus.not_anything": "7\n",
		}, []int{1, 2, 3, 4, 5, 6, 7}, "1-5", "1-3"},
		{"v1, old kernel's cpuset", map[string]string{
			"proc/self/cgroup": hybridOwn, "proc/self/mountinfo": hybrid,
			"sys/fs/cgroup/cpuset/s/cpuset.cpus": "2\n",
		}, []int{1, 2, 3}, "2", "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine(t, c.files, c.affinity...)
			for _, w := range []struct {
				what string
				fn   func() ([]int, error)
				want string
			}{{"allowed", m.Allowed, c.allowed}, {"default", m.Default, c.defaults}} {
				got, err := w.fn()
				if err != nil || Format(got) != w.want {
					t.Errorf("%s: %v %v, want %s", w.what, got, err, w.want)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	m := machine(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": unified,
		"sys/fs/cgroup/cpuset.cpus.effective": "4-5", "sys/fs/cgroup/cpu.max": "lots 100000\n",
	}, 0, 1)
	if set, err := m.Allowed(); err == nil {
		t.Errorf("nothing in common: %v", set)
	}
	if n, _, err := m.Quota(); err == nil || !strings.Contains(err.Error(), "lots") {
		t.Errorf("bad quota: %d %v", n, err)
	}
}

// The real machine: what is allowed can be pinned to, and the caller's own
// pinning doesn't narrow it.
func TestThisMachine(t *testing.T) {
	free, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	def, err := Default()
	if err != nil || len(def) == 0 || len(Without(def, free)) > 0 {
		t.Errorf("default %v of %v: %v", def, free, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends pinned, with the goroutine
		for _, c := range free {
			var one unix.CPUSet
			one.Set(c)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Errorf("pin to cpu %d: %v", c, err)
			}
			if got, err := Allowed(); err != nil || !slices.Equal(got, free) {
				t.Errorf("pinned to %d: allowed %v, want %v: %v", c, got, free, err)
			}
		}
	}()
	<-done
}

func TestParseAndFormat(t *testing.T) {
	for _, c := range []struct {
		in, out string
		set     []int
	}{
		{"", "", nil},
		{" \n", "", nil},
		{"0", "0", []int{0}},
		{"0-3,8", "0-3,8", []int{0, 1, 2, 3, 8}},
		{"3,1", "3,1", []int{3, 1}},
		{"0,0,1,1", "0,0-1,1", []int{0, 0, 1, 1}},
		{" 1 , 2\n", "1-2", []int{1, 2}},
		{"0-1,0-1", "0-1,0-1", []int{0, 1, 0, 1}},
	} {
		got, err := Parse(c.in)
		if err != nil || !slices.Equal(got, c.set) {
			t.Errorf("%q: %v %v, want %v", c.in, got, err, c.set)
		}
		if f := Format(got); f != c.out {
			t.Errorf("%q: formatted %q, want %q", c.in, f, c.out)
		}
	}
	for _, bad := range []string{",", "0,", "a", "1-", "-1", "2-1", "1-2-3", "0x1", "99999", "+1", "0-16383,1", "1 2"} {
		if set, err := Parse(bad); err == nil {
			t.Errorf("%q: %v", bad, set)
		}
	}
}

func TestRepeatsAndWithout(t *testing.T) {
	if got := Repeats([]int{3, 0, 1, 0, 3, 3}); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("repeats %v", got)
	}
	if got := Repeats([]int{2, 1}); got != nil {
		t.Errorf("repeats %v", got)
	}
	if got := Without([]int{5, 1, 9, 5}, []int{0, 1}); !slices.Equal(got, []int{5, 9}) {
		t.Errorf("without %v", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,8", "0,0,1,1", "", "1-", "4294967296"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(Format(set))
		if err != nil || !slices.Equal(again, set) {
			t.Errorf("%q: %v became %v: %v", s, set, again, err)
		}
	})
}
