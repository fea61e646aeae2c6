package fanout

import (
	"errors"
	"fmt"
	"testing"

	"github.com/epair-net/epair/fanout/port/memport"
)

// What was in the ports when Empty was called has left when it returns, in each mode.
func TestEmpty(t *testing.T) {
	for _, mode := range []Mode{Inline, Fanned, Polled} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			rig := newRig(t, mode, 3, memport.Config{Slots: 512, SlotLen: 512, MTU: 9000})
			ways := rig.ways(60)
			for range 50 {
				had := [2]uint64{rig.pair.AB.ledger().Tx, rig.pair.BA.ledger().Tx}
				for i, w := range ways {
					for range 100 {
						if !w.inject() {
							t.Fatal("no room")
						}
						had[i]++
					}
				}
				if err := rig.pool.Empty(rig.pair); err != nil {
					t.Fatal(err)
				}
				ab, ba := rig.pair.Ledgers()
				if ab.Tx != had[0] || ba.Tx != had[1] || ab.Queued+ba.Queued > 0 {
					t.Fatalf("want %v sent: %+v %+v", had, ab, ba)
				}
				for _, w := range ways {
					for {
						if got, err := w.capture(); err != nil {
							t.Fatal(err)
						} else if !got {
							break
						}
					}
				}
			}
			if err := rig.pool.Remove(rig.pair); err != nil {
				t.Fatal(err)
			}
			if err := rig.pool.Empty(rig.pair); !errors.Is(err, ErrClosed) {
				t.Errorf("of a pair that was removed: %v", err)
			}
		})
	}
}
