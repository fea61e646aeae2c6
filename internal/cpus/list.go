package cpus

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds what Parse accepts: more than the largest kernel's NR_CPUS.
const maxCPU = 1 << 14

// ErrSyntax says that text isn't a CPU list.
var ErrSyntax = errors.New("not a CPU list")

// Parse reads a CPU list as the kernel writes them ("0-3,8"), in the order given. A CPU may come more
// than once ("0,0,1,1": two workers on each, for tests). An empty text is an empty list.
func Parse(list string) ([]int, error) {
	var set []int
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		lo, err := number(first)
		hi := lo
		if err == nil && isRange {
			hi, err = number(last)
		}
		if err != nil || lo > hi {
			return nil, fmt.Errorf("cpus %.40q: %w (write it like 0-3,8)", list, ErrSyntax)
		}
		if len(set)+hi-lo >= maxCPU {
			return nil, fmt.Errorf("cpus %.40q: %w (more than %d)", list, ErrSyntax, maxCPU)
		}
		for c := lo; c <= hi; c++ {
			set = append(set, c)
		}
	}
	return set, nil
}

func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && n >= maxCPU {
		err = ErrSyntax
	}
	return int(n), err
}

// Format writes a list so that Parse gives it back: order and repeats are kept.
func Format(set []int) string {
	var b strings.Builder
	for i := 0; i < len(set); {
		j := i
		for j+1 < len(set) && set[j+1] == set[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(set[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(set[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Repeats returns the CPUs that a list has more than once, ascending.
func Repeats(set []int) []int {
	sorted := slices.Sorted(slices.Values(set))
	var twice []int
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			twice = append(twice, sorted[i])
		}
	}
	return slices.Compact(twice)
}

// Without returns the CPUs of set that aren't in allowed, ascending, each once.
func Without(set, allowed []int) []int {
	var out []int
	for _, c := range set {
		if !slices.Contains(allowed, c) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
