package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPUTime is the time in which the machine's CPUs were not idle, since boot.
//
// It is read as a whole from /proc/stat (proc_stat(5)): a thread's own times contain the
// softirqs that interrupted it, so times of threads and of the kernel don't add up.
func CPUTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read cpu time: %w", err)
	}
	return parseCPUTime(string(text))
}

// tick is the unit of /proc/stat: USER_HZ is 100 on all of Linux's machines that Go runs on.
const tick = 10 * time.Millisecond

// BusyTime is the time in which the named CPUs were not idle, since boot, added up.
func BusyTime(cpus []int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read cpu time: %w", err)
	}
	return parseBusyTime(string(text), cpus)
}

func parseBusyTime(stat string, cpus []int) (sum time.Duration, err error) {
	for _, cpu := range cpus {
		name := "cpu" + strconv.Itoa(cpu)
		at := strings.Index("\n"+stat, "\n"+name+" ")
		if at < 0 {
			return 0, fmt.Errorf("read cpu time: no %s (is it offline?)", name)
		}
		line, _, _ := strings.Cut(stat[at:], "\n")
		t, err := parseBusyLine(line, name)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// parseCPUTime reads the first line, which is about all CPUs.
func parseCPUTime(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	return parseBusyLine(line, "cpu")
}

// parseBusyLine adds up a line's times, but for idle, iowait, steal (not ours) and the guests' (which
// user contains).
func parseBusyLine(line, name string) (time.Duration, error) {
	f := strings.Fields(line)
	if len(f) < 8 || f[0] != name {
		return 0, fmt.Errorf("read cpu time: unexpected line %q", line)
	}
	var ticks int64
	for i, s := range f[1:8] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read cpu time: %w", err)
		}
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, nil
}
