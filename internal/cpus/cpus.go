// Package cpus says which CPUs this process may run on and how many of them it
// may keep busy.
//
//	which     affinity of the process, and the cpuset of its cgroup
//	how many  the CPU quota of its cgroup and of every cgroup above, rounded up
//
// Both cgroup versions are read, each where /proc/self/mountinfo says that it is mounted. What isn't
// there doesn't limit.
package cpus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Machine is where the facts are read from. Its zero value is this machine.
type Machine struct {
	Root     string                // before /proc and /sys; for tests
	Affinity func() ([]int, error) // sched_getaffinity(2) unless set
}

// Allowed returns the CPUs this process may run on, ascending.
func Allowed() ([]int, error) { return Machine{}.Allowed() }

// Default returns the CPUs to use when the user names none.
func Default() ([]int, error) { return Machine{}.Default() }

// Allowed returns the CPUs the process may run on, ascending.
func (m Machine) Allowed() ([]int, error) {
	affinity := m.Affinity
	if affinity == nil {
		affinity = ownAffinity
	}
	set, err := affinity()
	if err != nil {
		return nil, fmt.Errorf("read cpu affinity: %w", err)
	}
	slices.Sort(set)
	groups, err := m.cgroups()
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if set, err = g.limit(set); err != nil {
			return nil, err
		}
	}
	if len(set) == 0 {
		return nil, errors.New("find a cpu: affinity and cpuset of this process have none in common")
	}
	return set, nil
}

// Default returns the allowed CPUs, or as many of them, from the first, as the quota can keep busy.
func (m Machine) Default() ([]int, error) {
	set, err := m.Allowed()
	if err != nil {
		return nil, err
	}
	n, limited, err := m.Quota()
	if err != nil {
		return nil, err
	}
	if limited && n < len(set) {
		set = set[:n]
	}
	return set, nil
}

// Quota returns how many CPUs the cgroup's CPU time is worth, rounded up.
func (m Machine) Quota() (n int, limited bool, err error) {
	groups, err := m.cgroups()
	if err != nil {
		return 0, false, err
	}
	for _, g := range groups {
		q, has, err := g.quota()
		if err != nil {
			return 0, false, err
		}
		if has && (!limited || q < n) {
			n, limited = q, true
		}
	}
	return n, limited, nil
}

// read returns the content of a file, or "" when it isn't there.
func (m Machine) read(path string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/", m.Root, path))
	// ENODEV: the cgroup was removed while we look.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return string(b), err
}

// ownAffinity asks on a goroutine of its own, whose thread has the affinity of
// the process: the caller's may be pinned.
func ownAffinity() ([]int, error) {
	set := unix.NewCPUSet(maxCPU)
	done := make(chan error)
	go func() { done <- unix.SchedGetaffinityDynamic(0, set) }()
	err := <-done
	var list []int
	for c := range maxCPU {
		if set.IsSet(c) {
			list = append(list, c)
		}
	}
	return list, err
}
