package control

import (
	"sync"
	"time"
)

// autoEvery is how often rebalance: auto measures: a hundred times as long as it measures then.
const autoEvery = 20 * time.Second

// autoBalance rebalances again and again.
type autoBalance struct {
	stop chan struct{} // nil if it was never started
	end  sync.Once
	done sync.WaitGroup

	mu    sync.Mutex
	state Balancing
}

// keepBalanced starts to rebalance, until close.
func (d *Daemon) keepBalanced(every time.Duration) {
	b := &d.balance
	b.stop = make(chan struct{})
	b.state.Auto = true
	b.done.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-t.C:
				b.note(d.Rebalance(Rebalancing{}))
			}
		}
	})
}

func (b *autoBalance) note(r Rebalanced, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Verdict = r.Verdict
	if err != nil {
		b.state.Verdict = OneLine(err)
	}
	b.state.Measured++
	if r.Done {
		b.state.Done++
	}
}

func (b *autoBalance) answer() Balancing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// close ends it. A rebalancing that is under way ends first. It is idempotent.
func (b *autoBalance) close() {
	if b.stop != nil {
		b.end.Do(func() { close(b.stop) })
		b.done.Wait()
	}
}
