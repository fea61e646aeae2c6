package fanout

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/memport"
	"github.com/epair-net/epair/rss"
)

// skew sends frames of the flows that next names, until stop is called, and checks their order.
func skew(rig *rig, next func(i int) uint16) (stop func() error) {
	end, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var sent, got [testFlows]uint32
		buf, out := make([]byte, 128), make([]byte, 4096)
		for i, under := 0, 0; ; {
			select {
			case <-end:
				if under == 0 {
					done <- nil
					return
				}
			default:
				for flow := next(i); under < 100 && rig.a.Inject(0, nil, flowFrame(buf, flow, sent[flow])); flow = next(i) {
					sent[flow]++
					under++
					i++
				}
			}
			n := rig.b.Capture(out)
			if n == 0 {
				pause()
				continue
			}
			under--
			f := out[port.VNetHdrLen:n]
			flow, seq := binary.BigEndian.Uint16(f[34:]), binary.BigEndian.Uint32(f[46:])
			if seq != got[flow] {
				done <- fmt.Errorf("flow %d: frame %d came, want %d", flow, seq, got[flow])
				return
			}
			got[flow]++
		}
	}()
	return func() error { close(end); return <-done }
}

// A table that is worse than need be is changed for a better one, under load, and nothing is overtaken.
func TestRebalance(t *testing.T) {
	t.Parallel() // after all that count threads
	rig := newRig(t, Fanned, 2, memport.Config{Slots: 512})
	if _, err := rig.pool.SetSteering(newSteering(t, rss.Config{}, "weight 7 1", 128, 2)); err != nil {
		t.Fatal(err)
	}
	idle, err := rig.pool.Rebalance(false)
	if err != nil || idle.Done || idle.Worth {
		t.Fatalf("rebalanced without load: %+v, %v", idle, err)
	}
	stop := skew(rig, func(i int) uint16 { return uint16(i % testFlows) })
	before := rig.pool.Steering()
	// A bounded number of buckets moves at a time.
	for round, enough := 0, false; !enough; round++ {
		dry, err := rig.pool.Rebalance(true)
		if err != nil || dry.Done || rig.pool.Steering() != before {
			t.Fatalf("a dry run did something: %+v, %v", dry, err)
		}
		r, err := rig.pool.Rebalance(false)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %s; ratio %.2f, then %.2f; %d frames; %+v", round, r.Verdict, r.Before.Ratio, r.After.Ratio, r.Measured.Frames, r.Change)
		if r.Done != r.Worth || r.Done && (r.Change.Moved < len(r.Moves) || r.After.Max >= r.Before.Max) {
			t.Fatalf("%+v", r)
		}
		if enough = !r.Done && r.Measured.Frames >= minFrames; enough && (round == 0 || r.Before.Ratio > 1.3) {
			t.Fatalf("stopped in round %d: %+v", round, r)
		}
		if round > 40 {
			t.Fatal("the table is never good enough")
		}
		before = rig.pool.Steering()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if rig.pair.steering != rig.pool.Steering() {
		t.Error("the pair would come back to the old table")
	}
}

// A flow with half of all load is named, with the worker that sends it.
func TestElephantsAreNamed(t *testing.T) {
	t.Parallel() // after all that count threads
	rig := newRig(t, Fanned, 2, memport.Config{Slots: 512})
	stop := skew(rig, func(i int) uint16 {
		if i%2 == 0 {
			return 77
		}
		return uint16(i / 2 % testFlows)
	})
	waitFor(t, "frames flow", func() bool { return rig.pair.AB.ledger().Tx > 20_000 })
	all, err := rig.pool.Elephants()
	if err != nil {
		t.Fatal(err)
	}
	r, err := rig.pool.Rebalance(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(all) != 1 || !strings.Contains(all[0].Flow, "10.0.0.1:77 → 10.0.0.2:9") || all[0].Share < 0.35 || all[0].Share > 0.6 ||
		all[0].Pair != "p" || all[0].Way != "ab" || all[0].Worker != rig.pool.Steering().Table().Worker(all[0].Bucket) {
		t.Fatalf("%+v, want flow 77 with half of all", all)
	}
	if len(r.Elephants) != 1 || r.Elephants[0].Hash != all[0].Hash {
		t.Errorf("the plan names %+v", r.Elephants)
	}
	if b := all[0].Bucket; r.Measured.Buckets[b]*5 < sum(r.Measured.Buckets)*2 {
		t.Errorf("bucket %d has %d of %d", b, r.Measured.Buckets[b], sum(r.Measured.Buckets))
	}
}

func sum(v []uint64) (n uint64) {
	for _, x := range v {
		n += x
	}
	return n
}
