// Package fanout spreads the frames of all pairs over one fixed pool of workers.
//
// The way of a frame in mode pool; each step names who runs it, none blocks:
//
//	receive    reader's worker x   a batch of ≤ 64 frames of one lane
//	classify   x                   flow hash → bucket → worker y
//	stage      x                   y ≠ x: onto the ring x→y, bytes stay where they are
//	publish    x                   once per batch and ring; wake y if it is idle
//	send       x                   the frames of its own buckets, one batch
//	drain      worker y            ≤ 64 entries of each ring, by lane, one Send per run
//	release    y                   the Tx gives the bytes back to the reader's port
//
// In mode inline the lane's worker receives and sends, in mode poller a thread
// of the pair's own does, and nothing is classified.
//
// Words: a lane is one direction of a pair; it has one reader, the Rx at its
// near end, and one Tx per worker at its far end. One reader per lane and
// first-in-first-out rings are why frames of one flow can't overtake each other.
//
// Where the kernel spreads the frames, a direction has one lane per worker, and hardly a frame is handed
// over: spread.go says why the order holds there too.
//
// What changes while frames flow, without losing or overtaking one:
//
//	Pool.SetSteering  hash and table of all pairs     fence.go has the rule
//	Pool.SetMode      the mode of a pair              mode.go has the steps
//	Pool.SetCPUs      where the workers run
//	Pool.Rebalance    the table, from the load of each bucket
//	Pool.Fence        what these changes did
//
// What the pool tells of itself: Pair.Ledgers, Pool.WorkerStats (queues, waiting, batches, the scheduler),
// Pool.Measure and Pool.Elephants (load by bucket and flow), Pool.Faults (what the watchdog found stuck).
package fanout
