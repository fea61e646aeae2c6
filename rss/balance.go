package rss

import (
	"fmt"
	"slices"
)

// BalanceRule says when a table is changed for a better one, and by how much.
// The zero value takes the defaults.
type BalanceRule struct {
	// Threshold is the least improvement that is worth a change: by what share the load of the
	// busiest worker must fall; 0.1.
	Threshold float64
	// Moves is the most buckets that move at once; an eighth of the table, at least 8.
	Moves int
}

func (r BalanceRule) withDefaults(size int) BalanceRule {
	if r.Threshold == 0 {
		r.Threshold = 0.1
	}
	if r.Moves == 0 {
		r.Moves = max(8, size/8)
	}
	return r
}

// Move is a bucket that goes to another worker.
type Move struct {
	Bucket int    `json:"bucket"`
	From   int    `json:"from"`
	To     int    `json:"to"`
	Load   uint64 `json:"load"`
}

// Spread says how loads are spread over the workers that own buckets.
type Spread struct {
	Max   uint64   `json:"max"`   // of the busiest worker
	Mean  float64  `json:"mean"`  // of those that own buckets
	Ratio float64  `json:"ratio"` // Max / Mean: 1 is perfect; 0 without load
	Loads []uint64 `json:"loads"` // by worker
}

// SpreadOf says how the loads of buckets would be spread by a table.
func SpreadOf(t *Table, loads []uint64) (Spread, error) {
	if len(loads) != t.Size() {
		return Spread{}, fmt.Errorf("spread loads: of %d buckets, the table has %d", len(loads), t.Size())
	}
	return newBalancer(t, loads).spread(), nil
}

// Plan is a better table, and what it would bring.
type Plan struct {
	Table   *Table `json:"-"` // the present one, if nothing better was found
	Moves   []Move `json:"moves"`
	Before  Spread `json:"before"`
	After   Spread `json:"after"` // if the loads stay
	Worth   bool   `json:"worth"` // the improvement reaches the threshold
	Verdict string `json:"verdict"`
	// Heavy are the buckets with more load than a worker's fair share, heaviest first: no table
	// can spread one of them.
	Heavy []int `json:"heavy,omitempty"`
}

// Balance plans a better table from the load of each bucket. It is arithmetic: the same
// arguments give the same plan.
//
// Workers that own no bucket are left out, as they are meant to be; each of the others keeps at
// least one. Each step takes from the busiest worker to the least busy one the bucket that makes the
// greater load of both smallest.
func Balance(t *Table, loads []uint64, rule BalanceRule) (Plan, error) {
	if len(loads) != t.Size() {
		return Plan{}, fmt.Errorf("balance table: loads of %d buckets, the table has %d", len(loads), t.Size())
	}
	rule = rule.withDefaults(t.Size())
	b := newBalancer(t, loads)
	p := Plan{Table: t, Before: b.spread()}
	for len(p.Moves) < rule.Moves {
		m, ok := b.step()
		if !ok {
			break
		}
		p.Moves = append(p.Moves, m)
	}
	p.After = b.spread()
	p.Heavy = b.heavy(p.Before.Mean)
	gain := 0.0
	if p.Before.Max > 0 {
		gain = 1 - float64(p.After.Max)/float64(p.Before.Max)
	}
	switch {
	case p.Before.Max == 0:
		p.Verdict = "no load was measured"
	case len(p.Moves) == 0:
		p.Verdict = "no single move would help"
	case gain < rule.Threshold:
		p.Verdict = fmt.Sprintf("the busiest worker would have %.0f %% less, below the threshold of %.0f %%", 100*gain, 100*rule.Threshold)
	default:
		p.Worth = true
		p.Verdict = fmt.Sprintf("the busiest worker would have %.0f %% less", 100*gain)
	}
	if len(p.Moves) > 0 {
		p.Table = &Table{workers: t.workers, of: b.of}
	}
	return p, nil
}

// balancer is a table in the making.
type balancer struct {
	of    []uint16
	loads []uint64 // by bucket
	sum   []uint64 // by worker
	owns  []int    // buckets, by worker
	owner []int    // workers that owned buckets in the beginning
	moved []bool   // buckets that moved: none moves twice
}

func newBalancer(t *Table, loads []uint64) *balancer {
	b := &balancer{
		of: slices.Clone(t.of), loads: loads,
		sum: make([]uint64, t.workers), owns: make([]int, t.workers), moved: make([]bool, len(t.of)),
	}
	for i, w := range b.of {
		b.sum[w] += loads[i]
		b.owns[w]++
	}
	for w, n := range b.owns {
		if n > 0 {
			b.owner = append(b.owner, w)
		}
	}
	return b
}

func (b *balancer) spread() Spread {
	s := Spread{Loads: slices.Clone(b.sum)}
	var total uint64
	for _, w := range b.owner {
		s.Max = max(s.Max, b.sum[w])
		total += b.sum[w]
	}
	if total > 0 {
		s.Mean = float64(total) / float64(len(b.owner))
		s.Ratio = float64(s.Max) / s.Mean
	}
	return s
}

// step makes one move, if there is one that helps.
func (b *balancer) step() (m Move, ok bool) {
	from, to := b.owner[0], b.owner[0]
	for _, w := range b.owner {
		if b.sum[w] > b.sum[from] {
			from = w
		}
		if b.sum[w] < b.sum[to] {
			to = w
		}
	}
	if b.owns[from] < 2 {
		return m, false
	}
	best := b.sum[from]
	for i, w := range b.of {
		n := b.loads[i]
		if int(w) != from || n == 0 || b.moved[i] {
			continue
		}
		if worse := max(b.sum[from]-n, b.sum[to]+n); worse < best {
			best, ok = worse, true
			m = Move{Bucket: i, From: from, To: to, Load: n}
		}
	}
	if ok {
		b.of[m.Bucket], b.moved[m.Bucket] = uint16(to), true
		b.sum[from], b.sum[to] = b.sum[from]-m.Load, b.sum[to]+m.Load
		b.owns[from], b.owns[to] = b.owns[from]-1, b.owns[to]+1
	}
	return m, ok
}

// heavy returns the buckets with more than share, heaviest first.
func (b *balancer) heavy(share float64) []int {
	var all []int
	for i, n := range b.loads {
		if float64(n) > share {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(x, y int) int {
		switch {
		case b.loads[x] > b.loads[y]:
			return -1
		case b.loads[x] < b.loads[y]:
			return 1
		}
		return 0
	})
	return all
}
