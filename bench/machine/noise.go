package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Noise is what took time from a run, of all CPUs together.
type Noise struct {
	StealPercent   float64 `json:"steal_percent"`          // the hypervisor gave to others
	ForeignPercent float64 `json:"foreign_percent"`        // processes that aren't the bench's
	ThrottledMs    float64 `json:"throttled_ms,omitempty"` // the cgroup's quota was used up
}

// Watch takes the state of the machine; Noise compares with it later.
type Watch struct {
	root  string
	own   int // process whose descendants aren't foreign
	begin sample
}

// sample is the counters at one time. Times are in ticks of 10 ms.
type sample struct {
	total, steal uint64
	procs        map[int]proc
	throttled    uint64 // µs
}

type proc struct {
	parent int
	ticks  uint64 // its own, and its ended children's
	kernel bool
}

// NewWatch starts to watch.
func NewWatch() (*Watch, error) { return newWatch("/", os.Getpid()) }

func newWatch(root string, own int) (*Watch, error) {
	s, err := take(root)
	if err != nil {
		return nil, fmt.Errorf("watch machine: %w", err)
	}
	return &Watch{root, own, s}, nil
}

// Noise returns what happened since NewWatch. Steal counts for all CPUs of the machine, and so
// do the times of processes: 100 percent is every CPU taken. Kernel threads aren't foreign, they do the
// bench's work too; nor is what a softirq took from the bench's own threads.
func (w *Watch) Noise() (Noise, error) {
	now, err := take(w.root)
	if err != nil {
		return Noise{}, fmt.Errorf("watch machine: %w", err)
	}
	n := Noise{ThrottledMs: float64(now.throttled-min(now.throttled, w.begin.throttled)) / 1e3}
	total := float64(now.total - min(now.total, w.begin.total))
	if total == 0 {
		return n, nil // shorter than a tick
	}
	n.StealPercent = 100 * float64(now.steal-min(now.steal, w.begin.steal)) / total
	before, after := w.begin.foreign(w.own), now.foreign(w.own)
	n.ForeignPercent = min(100, 100*float64(after-min(after, before))/total)
	return n, nil
}

// foreign is the time of all processes that aren't own's, and of their children that have ended: what one takes
// and then ends is in its parent's sum.
func (s *sample) foreign(own int) (ticks uint64) {
	for pid, p := range s.procs {
		if !p.kernel && !s.descends(pid, own) {
			ticks += p.ticks
		}
	}
	return ticks
}

// descends says whether pid is own or a descendant of it.
func (s *sample) descends(pid, own int) bool {
	for range 64 { // a bound for what changed while we read
		if pid == own {
			return true
		}
		p, ok := s.procs[pid]
		if !ok || pid == 0 {
			return false
		}
		pid = p.parent
	}
	return false
}

func take(root string) (s sample, err error) {
	stat, err := os.ReadFile(filepath.Join(root, "proc/stat"))
	if err != nil {
		return s, err
	}
	if s.total, s.steal, err = totals(string(stat)); err != nil {
		return s, err
	}
	s.throttled = throttled(root)
	s.procs = map[int]proc{}
	dirs, err := os.ReadDir(filepath.Join(root, "proc"))
	if err != nil {
		return s, err
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, "proc", d.Name(), "stat"))
		if err != nil {
			continue // it ended
		}
		if p, ok := parseProc(string(text)); ok {
			s.procs[pid] = p
		}
	}
	return s, nil
}

// totals reads the first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal.
func totals(stat string) (total, steal uint64, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("unexpected line %.60q in /proc/stat", line)
	}
	for i, s := range f[1:9] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		total += n
		if i == 7 {
			steal = n
		}
	}
	return total, steal, nil
}

const pfKthread = 0x00200000 // include/linux/sched.h

// parseProc reads /proc/PID/stat (proc_pid_stat(5)): the name, field 2, may contain anything.
func parseProc(text string) (p proc, ok bool) {
	_, rest, ok := cutLast(text, ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 15 {
		return p, false
	}
	var n [6]uint64
	for i, k := range [6]int{1, 6, 11, 12, 13, 14} { // ppid, flags, utime, stime, cutime, cstime
		v, err := strconv.ParseUint(f[k], 10, 64)
		if err != nil {
			return p, false
		}
		n[i] = v
	}
	return proc{parent: int(n[0]), kernel: n[1]&pfKthread != 0, ticks: n[2] + n[3] + n[4] + n[5]}, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// throttled returns the microseconds for which this process's cgroup (version 2) was held back; 0 where that isn't counted.
func throttled(root string) uint64 {
	own, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(own)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path, "cpu.stat"))
		f := strings.Fields(string(text))
		if i := slices.Index(f, "throttled_usec"); i >= 0 && i+1 < len(f) {
			return number(f[i+1])
		}
	}
	return 0
}

// String says it in a line.
func (n Noise) String() string {
	return fmt.Sprintf("steal %.1f %%, other processes %.1f %%, throttled %s", n.StealPercent, n.ForeignPercent,
		time.Duration(n.ThrottledMs*1e6).Round(time.Millisecond))
}
