package rss

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Bounds of an indirection table. DefaultTableSize is what most NICs have; a pool
// of more workers gets the next power of two.
const (
	DefaultTableSize = 128
	MaxTableSize     = 4096
)

// Table is an indirection table: it maps buckets to workers. It is immutable;
// what a pool changes while it runs is its own copy.
type Table struct {
	workers int
	of      []uint16
}

// ParseTable builds the table that spec describes for a pool of that many
// workers, as ethtool -X does:
//
//	"" or equal     buckets go to all workers in turn
//	equal N         to the first N workers in turn
//	weight W0 W1 …  contiguous shares, in proportion to the weights; workers without a weight get none
//	0,1,0,1         as listed, repeated to the size of the table
//
// size is a power of two up to MaxTableSize. 0 is the default: DefaultTableSize, or
// the next power of two that holds all workers and the whole list.
func ParseTable(spec string, size, workers int) (*Table, error) {
	t, err := parseTable(strings.Fields(spec), size, workers)
	if err != nil {
		return nil, fmt.Errorf("rss table %q: %w", spec, err)
	}
	return t, nil
}

func parseTable(words []string, size, workers int) (*Table, error) {
	if workers < 1 || workers > MaxTableSize {
		return nil, fmt.Errorf("%d workers (needs 1 to %d)", workers, MaxTableSize)
	}
	if size != 0 && (size < 0 || size > MaxTableSize || size&(size-1) != 0) {
		return nil, fmt.Errorf("size %d (needs a power of two up to %d)", size, MaxTableSize)
	}
	t := &Table{workers: workers}
	switch {
	case len(words) == 0 || words[0] == "equal":
		return t, t.equal(words, tableSize(size, workers))
	case words[0] == "weight":
		return t, t.weight(words[1:], tableSize(size, workers))
	}
	return t, t.list(strings.Join(words, " "), size)
}

// tableSize returns size, or the default one that holds n entries.
func tableSize(size, n int) int {
	if size != 0 {
		return size
	}
	return max(DefaultTableSize, 1<<bits.Len(uint(n-1)))
}

// equal takes the words "equal N"; both may be missing.
func (t *Table) equal(words []string, size int) error {
	n := t.workers
	if len(words) > 2 {
		return fmt.Errorf("too many words (use equal N)")
	}
	if len(words) == 2 {
		var err error
		if n, err = strconv.Atoi(words[1]); err != nil || n < 1 || n > t.workers {
			return fmt.Errorf("%q isn't a number of workers (there are %d)", words[1], t.workers)
		}
	}
	if n > size {
		return fmt.Errorf("%d workers, but only %d buckets (use a larger table, or equal %d)", n, size, size)
	}
	t.of = make([]uint16, size)
	for i := range t.of {
		t.of[i] = uint16(i % n)
	}
	return nil
}

// weight gives worker j the buckets up to its cumulated share, as ethtool rounds it.
func (t *Table) weight(words []string, size int) error {
	weights, total, err := t.parseWeights(words)
	if err != nil {
		return err
	}
	if total > size {
		return fmt.Errorf("weights add up to %d, but there are only %d buckets (use smaller weights)", total, size)
	}
	t.of = make([]uint16, size)
	j, sum := 0, weights[0]
	for i := range t.of {
		for i >= size*sum/total {
			j++
			sum += weights[j]
		}
		t.of[i] = uint16(j)
	}
	return nil
}

func (t *Table) parseWeights(words []string) (weights []int, total int, err error) {
	if len(words) > t.workers {
		return nil, 0, fmt.Errorf("%d weights for %d workers", len(words), t.workers)
	}
	for _, w := range words {
		v, err := strconv.ParseUint(w, 10, 16)
		if err != nil {
			return nil, 0, fmt.Errorf("weight %q isn't a number from 0 to 65535", w)
		}
		weights = append(weights, int(v))
		total += int(v)
	}
	if total == 0 {
		return nil, 0, fmt.Errorf("no weight above 0 (some worker must own the buckets)")
	}
	return weights, total, nil
}

// list takes worker numbers, separated by commas.
func (t *Table) list(s string, size int) error {
	var of []uint16
	for _, w := range strings.Split(s, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(w))
		if err != nil {
			return fmt.Errorf("%q isn't a worker (use equal, equal N, weight W0 W1 … or a list 0,1,…)", strings.TrimSpace(w))
		}
		if v < 0 || v >= t.workers {
			return fmt.Errorf("no worker %d (there are %d, from 0)", v, t.workers)
		}
		of = append(of, uint16(v))
	}
	n := len(of)
	if size = tableSize(size, n); n > size || size%n != 0 || size > MaxTableSize {
		return fmt.Errorf("the list has %d entries (needs a power of two up to %d)", n, min(size, MaxTableSize))
	}
	for len(of) < size {
		of = append(of, of[:n]...)
	}
	t.of = of
	return nil
}

// Size returns the number of buckets, a power of two.
func (t *Table) Size() int { return len(t.of) }

// Workers returns the number of workers the table was made for; not all need own a bucket.
func (t *Table) Workers() int { return t.workers }

// Bucket returns the bucket of a hash.
func (t *Table) Bucket(hash uint32) int { return int(hash) & (len(t.of) - 1) }

// Worker returns the worker that owns a bucket, which must be below Size.
func (t *Table) Worker(bucket int) int { return int(t.of[bucket]) }

// String prints the table as ethtool -x does: rows of eight, each with its first bucket.
func (t *Table) String() string {
	var b strings.Builder
	for i, w := range t.of {
		if i%8 == 0 {
			fmt.Fprintf(&b, "%5d: ", i)
		}
		fmt.Fprintf(&b, " %5d", w)
		if i%8 == 7 || i == len(t.of)-1 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
