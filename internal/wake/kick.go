package wake

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Kick makes the sleeper look at its queues, whatever the state word says: for a watchdog that
// sees it sleep beside work. Any goroutine may call it until Close.
func (w *Waiter) Kick() error {
	if _, err := unix.Write(w.evfd, one[:]); err != nil {
		return fmt.Errorf("kick sleeper: %w", err)
	}
	return nil
}
