package fanout

// WorkerInfo is how a worker spends its time.
type WorkerInfo struct {
	ID   int
	Name string // of its thread
	CPU  int
	TID  int
	Pair string // whose poller it is; empty for the pool's own

	Turns, Empty          uint64 // all turns; those that found nothing to do
	Sleeps, Wakes, Yields uint64 // waits for work; others it woke; times it offered its CPU
}

func (w *worker) info(pair string) WorkerInfo {
	w.shown.mu.Lock()
	turns, empty := w.shown.counters.turns, w.shown.counters.empty
	w.shown.mu.Unlock()
	return WorkerInfo{
		ID: w.id, Name: w.name, CPU: w.cpu, TID: int(w.tid.Load()), Pair: pair, Turns: turns, Empty: empty,
		Sleeps: w.stats.sleeps.Load(), Wakes: w.stats.wakes.Load(), Yields: w.stats.yields.Load(),
	}
}

// Workers returns the pool's workers, and behind them the pollers.
func (p *Pool) Workers() []WorkerInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []WorkerInfo
	p.eachWorker(func(w *worker, pair string) { all = append(all, w.info(pair)) })
	return all
}

// eachWorker calls f for the pool's workers, and then for the pollers with the names of their pairs.
func (p *Pool) eachWorker(f func(w *worker, pair string)) {
	for _, w := range p.workers {
		f(w, "")
	}
	for _, pair := range p.pairs {
		if pair.own != nil {
			f(pair.own, pair.Name)
		}
	}
}
