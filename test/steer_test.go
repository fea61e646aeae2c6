package test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

// The kernel brings frames to the workers that send them: nobody hands any over, and flows keep
// their order.
func TestKernelSteering(t *testing.T) {
	needRoot(t)
	for _, c := range []cell{
		{epair.Veth, epair.Veth, "packet", "pool"}, {epair.TAP, epair.TAP, "packet", "pool"}, {epair.Veth, epair.TAP, "packet", "pool"},
	} {
		t.Run(c.String(), func(t *testing.T) {
			d := start(t, c.config("0,0,1"))
			born := d.Pairs()[0].AB.Drops
			inOrder(t, 60_000)
			p := settled(t, d, 60_000, born)
			if p.Steer != "kernel" {
				t.Fatalf("steer %s: %v", p.Steer, p.Why)
			}
			for _, w := range p.AB.Workers[:3] {
				if w.Rx == 0 || w.Handed != 0 || w.Taken != 0 || w.Imbalance != 0 {
					t.Errorf("worker %d: %+v", w.Worker, w)
				}
			}
		})
	}
}

// Table, hash and mode change while the kernel spreads the frames: each still comes through once,
// in its place.
func TestKernelSteeringChanges(t *testing.T) {
	needRoot(t)
	for _, c := range []cell{{epair.Veth, epair.Veth, "packet", "pool"}, {epair.TAP, epair.TAP, "packet", "pool"}} {
		t.Run(c.String(), func(t *testing.T) {
			d := start(t, c.config("0,0,1"))
			born := d.Pairs()[0].AB.Drops
			stop, stopped := make(chan struct{}), make(chan int, 1)
			go func() {
				n := 0
				for r := rand.New(rand.NewPCG(1, 2)); ; n++ {
					select {
					case <-stop:
						stopped <- n
						return
					case <-time.After(5 * time.Millisecond):
					}
					if err := changeOne(d, r); err != nil {
						t.Error(err)
					}
				}
			}()
			inOrder(t, 60_000)
			close(stop)
			if n := <-stopped; n < 10 {
				t.Errorf("only %d changes", n)
			}
			settled(t, d, 60_000, born)
		})
	}
}

// changeOne changes table, hash or mode.
func changeOne(d *control.Daemon, r *rand.Rand) error {
	var err error
	switch r.IntN(4) {
	case 0:
		fn := []string{"toeplitz", "xxhash"}[r.IntN(2)]
		_, err = d.SetRSS(control.RSSChange{Func: &fn})
	case 1:
		_, err = d.Set("p", control.PairChange{Mode: []string{"inline", "pool", "poller"}[r.IntN(3)]})
	default:
		table := make([]string, 128)
		for i := range table {
			table[i] = fmt.Sprint(r.IntN(3))
		}
		all := strings.Join(table, ",")
		_, err = d.SetRSS(control.RSSChange{Table: &all})
	}
	return err
}
