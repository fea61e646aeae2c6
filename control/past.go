package control

import (
	"maps"
	"slices"

	"github.com/epair-net/epair/fanout/kern/gate"
)

// fenceDrop is the reason of frames that a change dropped to keep their flow in order.
const fenceDrop = "fence"

// past is what a pair's former carriers did, and what no carrier did: the sum goes on when they go.
type past [2]Direction // from a to b, and back

// addTo adds it to what the carrier of now says.
func (p *past) addTo(a *Pair) {
	a.AB.add(&p[0])
	a.BA.add(&p[1])
}

// take adds the last ledger of a carrier that is empty. What is still missing has been lost on the way.
func (p *past) take(last *Pair) {
	for i, d := range []Direction{last.AB, last.BA} {
		p[i].add(&d)
		p.drop(i, d.Queued)
		p[i].Rx -= d.Queued // it was received already
		p[i].Queued = 0
	}
}

// drop counts frames that a change dropped.
func (p *past) drop(dir int, frames uint64) {
	if frames > 0 {
		p[dir].add(&Direction{Rx: frames, Drops: map[string]uint64{fenceDrop: frames}})
	}
}

// stopped counts what a gate dropped.
func (p *past) stopped(at [2]gate.Count) {
	for i, c := range at {
		p.drop(i, c.Frames)
		p[i].RxBytes += c.Bytes
	}
}

// add adds another ledger of the same direction.
func (d *Direction) add(o *Direction) {
	d.Rx += o.Rx
	d.RxBytes += o.RxBytes
	d.Tx += o.Tx
	d.TxBytes += o.TxBytes
	d.Queued += o.Queued
	d.Imbalance += o.Imbalance
	d.Unsteered += o.Unsteered
	d.Drops = maps.Clone(d.Drops)
	if d.Drops == nil {
		d.Drops = map[string]uint64{}
	}
	for reason, n := range o.Drops {
		d.Drops[reason] += n
	}
	d.Workers = addShares(slices.Clone(d.Workers), o.Workers)
	d.PerCPU = slices.Clone(d.PerCPU)
	for i, n := range o.PerCPU {
		if i == len(d.PerCPU) {
			d.PerCPU = append(d.PerCPU, 0)
		}
		d.PerCPU[i] += n
	}
}

// addShares adds what workers did before to what they did since. Each is at its place.
func addShares(now, before []Share) []Share {
	for i, s := range before {
		if i == len(now) {
			now = append(now, Share{Worker: s.Worker})
		}
		w := &now[i]
		w.Rx += s.Rx
		w.Tx += s.Tx
		w.Handed += s.Handed
		w.Taken += s.Taken
		w.Batches += s.Batches
		w.Imbalance += s.Imbalance
	}
	return now
}
