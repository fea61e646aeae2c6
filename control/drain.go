package control

import (
	"time"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/kern/skb"
)

// drain returns when nothing that was let in is on its way: when all queues have been emptied once, and no
// counter has moved meanwhile. Frames that come past the gate can hinder it; so it ends with what the longest queue
// needs: a veth's ring of 256 is empty after four polls of 64.
func (x *exchange) drain() error {
	const rounds = 8
	before, err := x.progress()
	for n := 0; err == nil && n < rounds; n++ {
		if err = skb.Settle(x.policy); err != nil {
			return err
		}
		dropped, err := x.p.carrier.empty(&x.p.cfg)
		x.dropped += dropped
		if err != nil {
			return err
		}
		after, err := x.progress()
		if err != nil || after == before {
			x.arrived = [2]uint64{after[0], after[1]}
			return err
		}
		before = after
	}
	return err
}

// progress is what the pair and its outer devices have counted.
func (x *exchange) progress() (n [6]uint64, err error) {
	a := Pair{Mode: x.p.cfg.Mode}
	x.p.carrier.answer(&a)
	at, err := x.received()
	return [6]uint64{at[0], at[1], a.AB.Rx, a.AB.Tx, a.BA.Rx, a.BA.Tx}, err
}

// received is what the outer devices have received, by direction.
func (x *exchange) received() (n [2]uint64, err error) {
	for i, e := range []*epair.End{x.p.ends.A, x.p.ends.B} {
		s, err := e.Stats()
		if err != nil {
			return n, err
		}
		n[i] = s.RxFrames
	}
	return n, nil
}

// count reads how many frames the outer devices have received, and how many more that is than carriers know of. While frames
// pass, some are on their way from the one to the other: it looks for a moment when there are few.
func (x *exchange) count() (arrived [2]uint64, more [2]int64, err error) {
	const (
		tries = 20
		pause = 100 * time.Microsecond
	)
	for n := range tries {
		before := x.carried()
		if arrived, err = x.received(); err != nil {
			return arrived, more, err
		}
		if x.carried() == before || n == 0 {
			for dir := range more {
				if now := int64(arrived[dir] - before[dir]); n == 0 || now < more[dir] {
					more[dir] = now
				}
			}
		}
		if arrived == x.arrived { // none has come since then
			break
		}
		time.Sleep(pause)
	}
	return arrived, more, nil
}

// carried is how many frames carriers have received, by direction.
func (x *exchange) carried() [2]uint64 {
	a := Pair{Mode: x.p.cfg.Mode}
	x.p.carrier.answer(&a)
	x.p.past.addTo(&a)
	return [2]uint64{a.AB.Rx, a.BA.Rx}
}

// countMissed counts what came past the gate and no carrier has received.
func (x *exchange) countMissed() error {
	_, more, err := x.count()
	if err != nil {
		return err
	}
	x.s.update(func(p *pair) {
		for dir := range more {
			if n := more[dir] - x.more[dir]; n > 0 {
				p.past.drop(dir, uint64(n))
				x.dropped += uint64(n)
			}
		}
	})
	return nil
}
