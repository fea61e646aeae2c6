package fanout

import (
	"sync"
	"sync/atomic"
)

// mailbox carries calls to a worker. It is how everything but frames reaches it.
type mailbox struct {
	pending atomic.Bool
	mu      sync.Mutex
	calls   []func()
	closed  bool
}

// do runs f on the worker, between two turns, and returns its error.
// It fails with ErrClosed when the worker has stopped.
func (w *worker) do(f func() error) error {
	done := make(chan error, 1)
	w.mail.mu.Lock()
	if w.mail.closed {
		w.mail.mu.Unlock()
		return ErrClosed
	}
	w.mail.calls = append(w.mail.calls, func() { done <- f() })
	w.mail.pending.Store(true) // pairs with the loop's Load and with quiet
	w.mail.mu.Unlock()
	w.wait.Wake()
	return <-done
}

// readMail makes the calls that have come. After the one that stops the worker, no more are taken.
func (w *worker) readMail() {
	w.mail.mu.Lock()
	calls := w.mail.calls
	w.mail.calls = nil
	w.mail.pending.Store(false)
	w.mail.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// stop ends the worker and frees what it holds. No lane may be attached.
func (w *worker) stop() error {
	err := w.do(func() error {
		w.stopping = true
		w.mail.mu.Lock()
		w.mail.closed = true
		w.mail.mu.Unlock()
		return w.arena.Close()
	})
	if err != nil {
		return err
	}
	<-w.done
	return w.wait.Close()
}
