// Package machine says on what a bench ran: the facts of the machine, and what else took its time.
package machine

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/cpus"
)

// Facts is what doesn't change during a run. What this machine doesn't tell is left out.
type Facts struct {
	CPUModel    string            `json:"cpu_model,omitempty"`
	CPUs        string            `json:"cpus,omitempty"` // that this process may use
	Online      string            `json:"online,omitempty"`
	Nodes       string            `json:"numa_nodes,omitempty"`
	Hypervisor  bool              `json:"hypervisor"`
	MemoryKB    uint64            `json:"memory_kb,omitempty"`
	Kernel      string            `json:"kernel"`
	Arch        string            `json:"arch"`
	CommandLine string            `json:"kernel_command_line,omitempty"`
	Mitigations map[string]string `json:"mitigations,omitempty"`
	Governor    string            `json:"governor,omitempty"`
	Clock       string            `json:"clocksource,omitempty"`
	CPUQuota    int               `json:"cpu_quota,omitempty"` // CPUs that the cgroup may keep busy
	Sysctls     map[string]string `json:"sysctls,omitempty"`
	Go          string            `json:"go"`
	MaxProcs    int               `json:"gomaxprocs"`
	Version     string            `json:"epair"`
}

// sysctls are those that a frame's way depends on.
var sysctls = [...]string{
	"net/core/bpf_jit_enable", "net/core/bpf_jit_harden", "net/core/netdev_max_backlog", "net/core/netdev_budget",
	"net/core/netdev_budget_usecs", "net/core/dev_weight", "net/core/rps_default_mask", "net/core/rps_sock_flow_entries",
	"net/core/busy_poll", "net/core/busy_read", "net/core/rmem_max", "net/core/wmem_max", "net/core/default_qdisc",
	"net/bridge/bridge-nf-call-iptables", "net/ipv4/tcp_congestion_control", "kernel/sched_rt_runtime_us", "kernel/bpf_stats_enabled",
}

// Read returns the facts. version is that of epair.
func Read(version string) Facts { return read("/", version) }

func read(root, version string) Facts {
	get := func(path string) string {
		b, _ := os.ReadFile(filepath.Join(root, path)) // what isn't there is left out
		return strings.TrimSpace(string(b))
	}
	info := get("proc/cpuinfo")
	f := Facts{
		CPUModel: field(info, "model name"), Online: get("sys/devices/system/cpu/online"), Nodes: get("sys/devices/system/node/online"),
		Hypervisor: strings.Contains(" "+field(info, "flags")+" ", " hypervisor "),
		Kernel:     release(), Arch: runtime.GOARCH, CommandLine: get("proc/cmdline"),
		Governor: get("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Clock:    get("sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Go:       runtime.Version(), MaxProcs: runtime.GOMAXPROCS(0), Version: version,
		Mitigations: map[string]string{}, Sysctls: map[string]string{},
	}
	f.MemoryKB = number(field(get("proc/meminfo"), "MemTotal"))
	if set, err := cpus.Allowed(); err == nil {
		f.CPUs = cpus.Format(set)
	}
	if n, limited, err := (cpus.Machine{Root: root}).Quota(); err == nil && limited {
		f.CPUQuota = n
	}
	const flaws = "sys/devices/system/cpu/vulnerabilities"
	list, _ := os.ReadDir(filepath.Join(root, flaws))
	for _, e := range list {
		if s := get(filepath.Join(flaws, e.Name())); s != "Not affected" {
			f.Mitigations[e.Name()] = s
		}
	}
	for _, s := range sysctls {
		if v := get("proc/sys/" + s); v != "" {
			f.Sysctls[strings.ReplaceAll(s, "/", ".")] = v
		}
	}
	return f
}

// field returns the first value of a key in a file of "key: value" lines.
func field(text, key string) string {
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if k, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// number reads the digits a text begins with.
func number(s string) (n uint64) {
	for _, c := range s {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + uint64(c-'0')
	}
	return n
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	r, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return string(r)
}
