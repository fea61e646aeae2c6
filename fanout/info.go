package fanout

// WorkerInfo is how a worker spends its time.
type WorkerInfo struct {
	ID   int
	Name string // of its thread
	CPU  int
	TID  int
	Pair string // whose poller it is; empty for the pool's own

	Turns, Empty          uint64 // all turns; polls that found nothing
	Sleeps, Wakes, Yields uint64 // waits for work; others it woke; times it offered its CPU
}

func (w *worker) info(pair string) WorkerInfo {
	return WorkerInfo{
		ID: w.id, Name: w.name, CPU: w.cpu, TID: int(w.tid.Load()), Pair: pair,
		Turns: w.stats.turns.Load(), Empty: w.stats.empty.Load(),
		Sleeps: w.stats.sleeps.Load(), Wakes: w.stats.wakes.Load(), Yields: w.stats.yields.Load(),
	}
}

// Workers returns the pool's workers, and behind them the pollers.
func (p *Pool) Workers() []WorkerInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []WorkerInfo
	for _, w := range p.workers {
		all = append(all, w.info(""))
	}
	for _, pair := range p.pairs {
		if pair.own != nil {
			all = append(all, pair.own.info(pair.Name))
		}
	}
	return all
}
