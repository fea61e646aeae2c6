package sink

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench/load"
)

// Config says where frames are counted.
type Config struct {
	NetNS   int       // descriptor of the namespace of the interface, borrowed until New returns
	Ifindex int       // the inner end at which frames arrive
	Also    []int     // further ones in the same namespace
	Mode    load.Mode // Frame: an XDP program; Skb: a tcx ingress program
	Flows   int       // of the load
}

// Result is what arrived since Reset.
type Result struct {
	Delivered  uint64 // frames of the run, duplicates included
	Bytes      uint64 // in them, duplicates and check sequences excluded
	Lost       uint64 // missing below the highest sequence number of their flow
	Reordered  uint64 // behind a higher sequence number of their flow (RFC 4737), duplicates excluded
	Duplicated uint64 // arrived again
	Stale      uint64 // of Reordered: so far behind that it isn't known whether they had arrived before
	Stray      uint64 // frames that aren't this run's

	Latency    *hdrhistogram.Histogram // ns from when the frame was due
	Network    *hdrhistogram.Histogram // ns from when the frame was sent
	LongestGap time.Duration           // without any frame, between the first and the last

	First, Last time.Duration // arrivals, CLOCK_MONOTONIC; 0 when there was none
	// Timeline counts arrivals in slots of SlotTime, from that of First to that of Last. The 8192nd takes all that came later.
	Timeline []uint64
}

// SlotTime is the resolution of the timeline.
const SlotTime time.Duration = 1 << 23 // 8.4 ms
