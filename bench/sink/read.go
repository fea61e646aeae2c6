package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/cilium/ebpf"
)

// As in sink.c.
const (
	steps   = 7
	buckets = 4096
	slots   = 8192
)

// Reset forgets what came and makes the sink count the frames of a run (load.Gen's NextRun).
// Frames of earlier runs that are still on their way are Stray then.
func (s *Sink) Reset(run uint16) error {
	begin := counterSinkShared{Run: uint32(run)}
	if s.Coarse {
		begin.Coarse = 1
	}
	err := errors.Join(
		s.objs.Shared.Put(uint32(0), &begin),
		s.objs.Counts.Put(uint32(0), make([]counterSinkCount, ebpf.MustPossibleCPU())),
		fill(s.objs.Tracks, make([]counterSinkFlow, s.cfg.Flows), s.cfg.Flows),
		fill(s.objs.Buckets, make([]counterSinkBucket, buckets*ebpf.MustPossibleCPU()), buckets),
		fill(s.objs.Timeline, make([]uint64, slots*ebpf.MustPossibleCPU()), slots),
		// Once more: a frame of an earlier run may have been counted meanwhile.
		s.objs.Shared.Put(uint32(0), &begin),
	)
	if err != nil {
		return fmt.Errorf("reset sink: %w", err)
	}
	return nil
}

// fill writes an array's n values.
func fill[V any](m *ebpf.Map, values []V, n int) error {
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := m.BatchUpdate(keys, values, nil)
	return err
}

// Arrived returns how many different frames of the run have come until now.
func (s *Sink) Arrived() (uint64, error) {
	c, err := s.count()
	return c.Delivered - c.Duplicated, err
}

func (s *Sink) count() (sum counterSinkCount, err error) {
	var cpus []counterSinkCount
	if err := s.objs.Counts.Lookup(uint32(0), &cpus); err != nil {
		return sum, fmt.Errorf("read sink: %w", err)
	}
	for _, c := range cpus {
		sum.Delivered += c.Delivered
		sum.Bytes += c.Bytes
		sum.Reordered += c.Reordered
		sum.Duplicated += c.Duplicated
		sum.Stale += c.Stale
		sum.Stray += c.Stray
		sum.Gap = max(sum.Gap, c.Gap)
		sum.Last = max(sum.Last, c.Last)
		if c.First != 0 && (sum.First == 0 || c.First < sum.First) {
			sum.First = c.First
		}
	}
	return sum, nil
}

// Read returns what came since Reset. Frames that arrive during the call may be in one figure and not in
// another.
func (s *Sink) Read() (Result, error) {
	c, err := s.count()
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Delivered: c.Delivered, Bytes: c.Bytes, Reordered: c.Reordered, Duplicated: c.Duplicated, Stale: c.Stale, Stray: c.Stray,
		LongestGap: time.Duration(c.Gap), First: time.Duration(c.First), Last: time.Duration(c.Last),
	}
	if r.Lost, err = s.lost(c.Delivered - c.Duplicated); err != nil {
		return Result{}, err
	}
	if r.Latency, r.Network, err = s.histograms(); err != nil {
		return Result{}, err
	}
	line, err := s.timeline()
	if err != nil {
		return Result{}, err
	}
	r.Timeline = line
	return r, nil
}

// lost is what is missing below the flows' highest sequence numbers if so many different frames came.
func (s *Sink) lost(came uint64) (lost uint64, err error) {
	keys, flows := make([]uint32, s.cfg.Flows), make([]counterSinkFlow, s.cfg.Flows)
	if err := all(s.objs.Tracks, keys, flows); err != nil {
		return 0, err
	}
	for i := range flows {
		lost += uint64(flows[i].Next)
	}
	return lost - min(came, lost), nil // frames that came meanwhile are in one figure only
}

// histograms returns the times from due and from sent.
func (s *Sink) histograms() (due, sent *hdrhistogram.Histogram, err error) {
	cpus := ebpf.MustPossibleCPU()
	values := make([]counterSinkBucket, buckets*cpus)
	if err := all(s.objs.Buckets, make([]uint32, buckets), values); err != nil {
		return nil, nil, err
	}
	due, sent = NewHistogram(), NewHistogram()
	for i, b := range values {
		record(due, i/cpus, b.Due)
		record(sent, i/cpus, b.Sent)
	}
	return due, sent, nil
}

// timeline ends with the last slot in which a frame came.
func (s *Sink) timeline() ([]uint64, error) {
	cpus := ebpf.MustPossibleCPU()
	values := make([]uint64, slots*cpus)
	if err := all(s.objs.Timeline, make([]uint32, slots), values); err != nil {
		return nil, err
	}
	line, end := make([]uint64, slots), 0
	for i, n := range values {
		if n != 0 {
			line[i/cpus] += n
			end = i/cpus + 1
		}
	}
	return line[:end], nil
}

// all reads an array's values; keys has room for them all.
func all[V any](m *ebpf.Map, keys []uint32, values []V) error {
	var at ebpf.MapBatchCursor
	n, err := m.BatchLookup(&at, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read sink: %w", err)
	}
	if n != len(keys) {
		return fmt.Errorf("read sink: %d of %d values", n, len(keys))
	}
	return nil
}

// NewHistogram holds what sinks measure: 1 ns to 5 minutes with three digits, of which the sink fills in two.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(5*time.Minute), 3) }

func record(h *hdrhistogram.Histogram, bucket int, n uint64) {
	if n != 0 {
		// No error: no bucket's middle is outside the histogram.
		_ = h.RecordValues(middle(bucket), int64(n))
	}
}

// middle is the value that stands for a bucket.
func middle(i int) int64 {
	octave := i>>steps - 1
	if octave < 0 {
		return int64(i)
	}
	low := int64(1<<steps+i&(1<<steps-1)) << octave
	return low + int64(1)<<octave/2
}
