package cpus

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// group is the cgroup of this process in one hierarchy.
type group struct {
	m     Machine
	v2    bool
	mount string // where the hierarchy is mounted
	path  string // of the cgroup below it
	has   []string
}

// cgroups returns the cgroups that may limit CPUs: the unified one, and those of the v1
// controllers cpu and cpuset. See cgroups(7), "/proc files", and proc(5), mountinfo.
func (m Machine) cgroups() ([]group, error) {
	own, err := m.read("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := m.read("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var groups []group
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // id:controllers:path
		if len(f) != 3 {
			continue
		}
		g := group{m: m, v2: f[1] == "", has: strings.Split(f[1], ",")}
		if !g.v2 && !slices.Contains(g.has, "cpu") && !slices.Contains(g.has, "cpuset") {
			continue
		}
		if g.locate(mounts, f[2]) {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// locate finds where the cgroup at own, in its hierarchy, can be read.
func (g *group) locate(mounts, own string) bool {
	if strings.HasPrefix(own, "/..") {
		return false // outside of this process's cgroup namespace
	}
	for line := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		v2 := r[0] == "cgroup2"
		v1 := r[0] == "cgroup" && slices.ContainsFunc(g.has, func(c string) bool {
			return c != "" && slices.Contains(strings.Split(r[2], ","), c)
		})
		if g.v2 && !v2 || !g.v2 && !v1 {
			continue
		}
		// What is mounted may be a part of the hierarchy only (a container without a cgroup
		// namespace): its root is then the container's cgroup.
		rest, ok := strings.CutPrefix(own, l[3])
		if !ok || l[3] != "/" && rest != "" && rest[0] != '/' {
			continue
		}
		g.mount, g.path = l[4], path.Join("/", rest)
		return true
	}
	return false
}

// limit returns the CPUs of set that the group's cpuset has.
func (g group) limit(set []int) ([]int, error) {
	files := []string{"cpuset.cpus.effective"}
	if !g.v2 {
		if !slices.Contains(g.has, "cpuset") {
			return set, nil
		}
		files = []string{"cpuset.effective_cpus", "cpuset.cpus"}
	}
	for _, f := range files {
		text, err := g.read(g.path, f)
		if err != nil {
			return nil, err
		}
		cpuset, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		if len(cpuset) > 0 { // empty: the controller is off, or the group is being set up
			return slices.DeleteFunc(slices.Clone(set), func(c int) bool { return !slices.Contains(cpuset, c) }), nil
		}
	}
	return set, nil
}

// quota returns the tightest quota of the group and those above, in CPUs.
func (g group) quota() (n int, limited bool, err error) {
	if !g.v2 && !slices.Contains(g.has, "cpu") {
		return 0, false, nil
	}
	for dir := g.path; ; dir = path.Dir(dir) {
		max, period, err := g.bandwidth(dir)
		if err != nil {
			return 0, false, err
		}
		if max > 0 && period > 0 {
			if q := int((max + period - 1) / period); !limited || q < n {
				n, limited = q, true
			}
		}
		if dir == "/" {
			return n, limited, nil
		}
	}
}

// bandwidth returns the microseconds of CPU time per period; 0 is no limit.
func (g group) bandwidth(dir string) (max, period int64, err error) {
	var text string
	if g.v2 {
		text, err = g.read(dir, "cpu.max") // "max 100000" or "150000 100000"
	} else {
		var q, p string
		if q, err = g.read(dir, "cpu.cfs_quota_us"); err == nil { // -1: no limit
			p, err = g.read(dir, "cpu.cfs_period_us")
		}
		text = q + " " + p
	}
	f := strings.Fields(text)
	if err != nil || len(f) != 2 || f[0] == "max" || f[0] == "-1" {
		return 0, 0, err
	}
	if max, err = strconv.ParseInt(f[0], 10, 64); err == nil {
		period, err = strconv.ParseInt(f[1], 10, 64)
	}
	if err != nil || max < 0 || period <= 0 || max > 1<<50 {
		return 0, 0, fmt.Errorf("read cpu quota of cgroup %s: %q is none", dir, strings.TrimSpace(text))
	}
	return max, period, nil
}

func (g group) read(dir, file string) (string, error) {
	return g.m.read(path.Join(g.mount, dir, file))
}
