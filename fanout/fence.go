package fanout

// The fence: a bucket moves to another worker only when nothing of it is in flight.
//
//	the reader of the lane                      the old worker
//	push      notes in the bucket the position
//	          behind its last frame on the ring
//	                                            drain     sends, then frees the ring up to
//	                                                      the last frame that left
//	sweep     moves the bucket if the ring was
//	          freed up to the noted position
//
// Until then the bucket's frames go on to the old worker. It is the rule by which the kernel
// moves flows between CPUs (rps_dev_flow.last_qtail, net/core/dev.c), with the ring's own
// words as counters: the old worker pays nothing, and the reader one store per frame.
//
// A bucket that never runs empty would never move. So when a change has taken stallAfter, the
// reader leaves the lane's frames in its port until what is on the rings has left, which is
// bounded by the rings' size. It doesn't spin meanwhile: who asked for the change looks once a
// millisecond.

import "time"

// bucket is what the reader of a lane knows of a bucket. All of it is the reader's own.
type bucket struct {
	last   uint64 // on the ring to worker: the position behind the bucket's last frame
	frames uint64 // received since the hash was chosen
	bytes  uint64
	worker int32 // who sends its frames
	want   int32 // who is to send them: the same, unless it is moving
}

// fence is a lane's share. All of it is the reader's own.
type fence struct {
	steer   *Steering // nil: whoever receives a frame sends it
	buckets []bucket  // as many as steer's table has
	moving  int       // buckets whose worker isn't the wanted one
	asked   time.Time // when the wanted workers were last set
	stalled time.Time // since when nothing is received, for the moving ones to run empty; zero: it is
}

// moveLog is what became of a change on one worker. It is the worker's own while a change runs.
type moveLog struct {
	moved, held int
	took        histogram // from the request to each bucket's move
	blocked     histogram // of lanes that received nothing
}

// retarget sets the wanted worker of all of l's buckets, as table says, or the reader
// itself if it's nil, and moves those that can move. It runs on the reader.
func (w *worker) retarget(l *Lane, s *Steering, log *moveLog, now time.Time) {
	l.asked, l.moving = now, 0
	for i := range l.buckets {
		b := &l.buckets[i]
		b.want = int32(w.id)
		if s != nil {
			b.want = int32(s.table.Worker(i))
		}
		if b.want != b.worker {
			l.moving++
		}
	}
	w.log = log
	w.sweep(l)
	log.held += l.moving
}

// sweep moves the buckets that can move. It runs on the reader.
func (w *worker) sweep(l *Lane) {
	if l.moving == 0 {
		return
	}
	now := time.Now()
	for i := range l.buckets {
		b := &l.buckets[i]
		if b.worker == b.want || !w.settled(l, b) {
			continue
		}
		b.worker, b.last = b.want, 0 // on the new ring is nothing yet
		l.moving--
		w.log.moved++
		w.log.took.record(now.Sub(l.asked))
	}
	if l.moving == 0 {
		w.resume(l, now)
	}
}

// settled tells whether all frames of b have left.
func (w *worker) settled(l *Lane, b *bucket) bool {
	y := int(b.worker)
	if y != w.id && w.out[y].head.Load() < b.last { // pairs with advance: what is below has been sent
		return false
	}
	return l.txs[y].Queued() == 0
}

// stall ends receiving until no bucket is moving. It runs on the reader.
func (w *worker) stall(l *Lane, now time.Time) {
	if l.stalled.IsZero() && l.moving > 0 {
		l.stalled = now
	}
}

// resume ends stall. Its caller may be the loop over the active list, which l is still on then.
func (w *worker) resume(l *Lane, now time.Time) {
	if !l.stalled.IsZero() {
		w.log.blocked.record(now.Sub(l.stalled))
		l.stalled = time.Time{}
		w.activate(l) // what came meanwhile has been told already
	}
}

// abandon takes the wish to move back, for the buckets that still wait. It runs on the reader.
func (w *worker) abandon(l *Lane) {
	for i := range l.buckets {
		l.buckets[i].want = l.buckets[i].worker
	}
	l.moving = 0
	w.resume(l, time.Now())
}

// adopt gives l another hash; buckets are as many as s has, and empty. Every
// bucket is the reader's then, and moves to the worker that s names. With s nil whoever receives sends.
//
// It runs on the reader, when the reader owns all old buckets: none of l's frames is on a ring.
func (w *worker) adopt(l *Lane, s *Steering, buckets []bucket) {
	l.steer, l.buckets, l.sampler = s, buckets, sampler{}
	for i := range buckets {
		buckets[i] = bucket{worker: int32(w.id), want: int32(w.id)}
	}
}
