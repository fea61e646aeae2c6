package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Fleet makes many of something, and removes all.
type Fleet interface {
	Add(ctx context.Context, i int) error // the i-th, from 0
	RemoveAll(ctx context.Context) error
}

// PairsResult says what n of them cost.
type PairsResult struct {
	N        int
	Create   time.Duration // all
	Remove   time.Duration // all
	Resident int64         // bytes more in the process that serves them
	Kernel   int64         // bytes more in the kernel's slabs and per-CPU memory: everybody's, so small fleets drown in noise
	Threads  int           // more in the process
}

// CreateRate and RemoveRate are pairs a second.
func (r PairsResult) CreateRate() float64 { return float64(r.N) / r.Create.Seconds() }

// RemoveRate counts all of one RemoveAll.
func (r PairsResult) RemoveRate() float64 { return float64(r.N) / r.Remove.Seconds() }

// Pairs makes n and removes them. pid is the process that serves them. While all are there, use is called, unless it is nil;
// it may measure them. What was made is removed in any case.
func Pairs(ctx context.Context, f Fleet, n, pid int, use func(ctx context.Context) error) (r PairsResult, err error) {
	before, err := readFootprint(pid)
	if err != nil {
		return r, err
	}
	start := time.Now()
	for i := 0; i < n && err == nil; i++ {
		if err = f.Add(ctx, i); err == nil {
			r.N++
		}
	}
	r.Create = time.Since(start)
	if err == nil {
		var after footprint
		after, err = readFootprint(pid)
		r.Resident, r.Kernel, r.Threads = after.resident-before.resident, after.kernel-before.kernel, int(after.threads-before.threads)
	}
	if err == nil && use != nil {
		err = use(ctx)
	}
	start = time.Now()
	rerr := f.RemoveAll(context.WithoutCancel(ctx))
	r.Remove = time.Since(start)
	if err = errors.Join(err, rerr); err != nil {
		return r, fmt.Errorf("make and remove %d pairs: %w", n, err)
	}
	return r, nil
}

// footprint is what a process, and the kernel, have taken.
type footprint struct{ resident, kernel, threads int64 }

func readFootprint(pid int) (f footprint, err error) {
	status, err := readTable("/proc/"+strconv.Itoa(pid)+"/status", "VmRSS", "Threads")
	if err != nil {
		return f, err
	}
	memory, err := readTable("/proc/meminfo", "Slab", "Percpu")
	if err != nil {
		return f, err
	}
	return footprint{resident: status[0] << 10, threads: status[1], kernel: (memory[0] + memory[1]) << 10}, nil
}

// readTable reads numbers from a file of lines `name: number …`.
func readTable(path string, names ...string) ([]int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read footprint: %w", err)
	}
	defer file.Close()
	values, found := make([]int64, len(names)), 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		for i := range names {
			if name != names[i] {
				continue
			}
			number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			if values[i], err = strconv.ParseInt(number, 10, 64); err != nil {
				return nil, fmt.Errorf("read %s of %s: %w", name, path, err)
			}
			found++
		}
	}
	if found != len(names) {
		return nil, fmt.Errorf("read footprint: %s lacks one of %v", path, names)
	}
	return values, nil
}
