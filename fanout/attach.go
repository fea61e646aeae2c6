package fanout

import "fmt"

// attach makes w the reader of l. It runs on the worker.
func (w *worker) attach(l *Lane) error {
	t := 0
	for t < len(w.byTok) && w.byTok[t] != nil {
		t++
	}
	if t == len(w.byTok) {
		w.byTok = append(w.byTok, nil)
		grown := make([]*Lane, len(w.active), 2*len(w.byTok))
		w.active = grown[:copy(grown, w.active)]
	}
	l.token = int32(t)
	w.byTok[t] = l
	if err := w.wait.Add(l.rx.FD(), l.token); err != nil {
		w.byTok[t], l.token = nil, -1
		return fmt.Errorf("attach port: %w", err)
	}
	// What arrived before the descriptor was watched is found by the first Receive.
	w.activate(l)
	return nil
}

// detach ends attach. It runs on the worker; frames already handed over go on.
func (w *worker) detach(l *Lane) error {
	if l.token < 0 {
		return nil // it couldn't be attached again
	}
	w.byTok[l.token] = nil
	for i, a := range w.active {
		if a == l {
			w.active = append(w.active[:i], w.active[i+1:]...)
			break
		}
	}
	l.token, l.active = -1, false
	if l.gone.Load() {
		return nil // the kernel may have dropped the watch with the device
	}
	return w.wait.Remove(l.rx.FD())
}
