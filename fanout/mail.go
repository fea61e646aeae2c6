package fanout

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
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

// ask is do with an end: it fails with ErrStuck, and f isn't run, if the worker hasn't
// begun to run it after so long.
func (w *worker) ask(wait time.Duration, f func() error) error {
	const waiting, begun, withdrawn = 0, 1, 2
	var state atomic.Int32
	done := make(chan error, 1)
	go func() {
		done <- w.do(func() error {
			if !state.CompareAndSwap(waiting, begun) {
				return nil
			}
			return f()
		})
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(wait):
		if state.CompareAndSwap(waiting, withdrawn) {
			return fmt.Errorf("worker %s hasn't answered for %v: %w", w.name, wait, ErrStuck)
		}
		return <-done
	}
}

// readMail makes the calls that have come. After the one that stops the worker, no more are taken.
func (w *worker) readMail() {
	w.at.Store(nowhere)
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
	if errors.Is(err, ErrClosed) {
		return err
	}
	<-w.done
	return errors.Join(err, w.wait.Close())
}
