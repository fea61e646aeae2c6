package control

import (
	"slices"
	"sync"
	"time"

	"github.com/epair-net/epair/fanout"
)

// patience is how long a question waits for the workers' figures while a change holds the pool.
const patience = 50 * time.Millisecond

// workersView answers for the workers, also while a change holds the pool: then by what was last known.
//
// Concurrency contract: any goroutine may call get.
type workersView struct {
	mu     sync.Mutex
	last   []Worker      // replaced, never changed
	asking chan struct{} // closed when the question that is under way is answered; nil: there is none
}

// get returns the workers, not older than the change that holds the pool.
func (v *workersView) get(pool *fanout.Pool) []Worker {
	v.mu.Lock()
	if v.asking == nil {
		v.asking = make(chan struct{})
		go v.ask(pool)
	}
	asking := v.asking
	v.mu.Unlock()
	select {
	case <-asking:
	case <-time.After(patience):
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.last)
}

// ask waits for the pool.
func (v *workersView) ask(pool *fanout.Pool) {
	// The error is of the scheduler's figures, which a kernel may not have: they are 0 then.
	stats, _ := pool.WorkerStats()
	all := make([]Worker, len(stats))
	for i := range stats {
		all[i] = answerWorker(&stats[i])
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = all
	close(v.asking)
	v.asking = nil
}

func answerWorker(w *fanout.WorkerStats) Worker {
	return Worker{
		ID: w.ID, Name: w.Name, CPU: w.CPU, TID: w.TID, Pair: w.Pair,
		Turns: w.Turns, Empty: w.Empty, Sleeps: w.Sleeps, Wakes: w.Wakes, Yields: w.Yields,
		Frames: w.Frames, Batches: w.Batches[:],
		QueueMin: w.QueueMin, QueueMean: w.QueueMean, QueueMax: w.QueueMax,
		SojournP50Micros: micros(w.SojournP50), SojournP99Micros: micros(w.SojournP99), SojournMaxMicros: micros(w.SojournMax),
		CPUNanos: uint64(w.Run), WaitNanos: uint64(w.Delay),
	}
}

func answerFaults(faults []fanout.Fault) []Fault {
	all := []Fault{}
	for _, f := range faults {
		a := Fault{What: f.What, Since: f.Since.Format(time.RFC3339Nano), Kicks: f.Kicks}
		if !f.Until.IsZero() {
			a.Until = f.Until.Format(time.RFC3339Nano)
		}
		all = append(all, a)
	}
	return all
}
