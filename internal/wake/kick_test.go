package wake

import (
	"testing"
	"time"
)

// A kick wakes also a sleeper that others take for awake.
func TestKickWakesWhateverTheState(t *testing.T) {
	w := newWaiter(t)
	woke := make(chan struct{})
	go func() {
		w.Arm()
		w.Disarm() // the state says RUNNING, and the sleeper sleeps
		w.Sleep(time.Minute)
		close(woke)
	}()
	for {
		if err := w.Kick(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woke:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
