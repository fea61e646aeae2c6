package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TrialResult is what one trial showed: one load, for one time, counted at the far end.
type TrialResult struct {
	Offered, Delivered, Bytes   uint64 // Delivered: without duplicates
	Lost, Reordered, Duplicated uint64 // Lost: offered and not delivered
	Seconds                     float64
	IntendedPPS                 float64 // 0 at maximum rate
	OfferedPPS, PPS             float64 // PPS: delivered
	Gbps                        float64 // delivered, check sequences and gaps excluded

	Latency     *hdrhistogram.Histogram // ns from when each frame was due; at maximum rate, from when it was sent
	LongestGap  time.Duration           // without an arrival
	Timeline    []uint64                // arrivals in each sink.SlotTime
	CPUPerFrame float64                 // ns of the used CPUs for each delivered frame, the load's own excluded; NaN when not asked for

	Invalid string // why the trial doesn't count, "" when it does
}

// Topology is what is measured: frames that enter at the load's interface should come out at the sink's.
type Topology interface {
	// Load and Sink are inner ends: descriptor of the namespace and index of the interface, both borrowed until Close.
	Load() (netns, ifindex int)
	Sink() (netns, ifindex int)
	Close() error
}
