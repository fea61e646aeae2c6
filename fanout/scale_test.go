package fanout

import (
	"fmt"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/rss"
)

// A change reaches all pairs, however many there are, and none of them starts a thread.
func TestChangesOfManyPairs(t *testing.T) {
	const pairs = 300
	rig := newRig(t, Fanned, 2, memport.Config{Slots: 8, Out: 8})
	for i := 1; i < pairs; i++ {
		a, b := memport.New(memport.Config{Slots: 8, Out: 8}), memport.New(memport.Config{Slots: 8, Out: 8})
		rig.add(t, fmt.Sprint(i), []Mode{Fanned, Inline}[i%2], a, b)
	}
	fanned := (pairs + 1) / 2
	// The present table is 0,1,0,1 …
	c, err := rig.pool.SetSteering(newSteering(t, rss.Config{}, "1,0", 128, 2))
	if err != nil || c.Moved != 2*fanned*128 {
		t.Errorf("table: %+v, %v; want %d moves", c, err, 2*fanned*128)
	}
	t.Logf("table: %v", c.Took)
	if c, err = rig.pool.SetSteering(newSteering(t, rss.Config{Func: "xxhash"}, "equal", 64, 2)); err != nil {
		t.Error(err)
	}
	t.Logf("hash: %v", c.Took)
	start := time.Now()
	for _, p := range rig.pool.Pairs() {
		if _, err := rig.pool.SetMode(p, Inline); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("mode: %v each", time.Since(start)/pairs)
	if n := len(rig.pool.Workers()); n != 2 {
		t.Errorf("%d workers", n)
	}
	if l := rig.pool.steered(); len(l) != 0 {
		t.Errorf("%d lanes are still spread", len(l))
	}
}
