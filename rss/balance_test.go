package rss

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func table(t *testing.T, spec string, size, workers int) *Table {
	t.Helper()
	tab, err := ParseTable(spec, size, workers)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestBalance(t *testing.T) {
	for _, c := range []struct {
		name    string
		table   string
		workers int
		loads   []uint64
		rule    BalanceRule
		moves   string
		worth   bool
		heavy   string
		verdict string
	}{
		{"even", "0,1,0,1", 2, []uint64{5, 5, 5, 5}, BalanceRule{}, "[]", false, "[]", "no single move"},
		{"idle", "0,1,0,1", 2, []uint64{0, 0, 0, 0}, BalanceRule{}, "[]", false, "[]", "no load"},
		{"one side", "0,1,0,1", 2, []uint64{10, 0, 10, 0}, BalanceRule{}, "[{0 0 1 10}]", true, "[]", "50 % less"},
		{"elephant", "0,1,0,1", 2, []uint64{100, 3, 2, 0}, BalanceRule{}, "[{2 0 1 2}]", false, "[0]", "2 % less, below"},
		{"elephant, low bar", "0,1,0,1", 2, []uint64{100, 3, 2, 0}, BalanceRule{Threshold: 0.01}, "[{2 0 1 2}]", true, "[0]", "2 % less"},
		{"elephant alone", "0,1,1,1", 2, []uint64{100, 3, 2, 0}, BalanceRule{}, "[]", false, "[0]", "no single move"},
		{"one move only", "0,0,0,1", 2, []uint64{8, 8, 8, 0}, BalanceRule{Moves: 1}, "[{0 0 1 8}]", true, "[]", "33 % less"},
		{"worker left out", "0,0,0,1", 3, []uint64{8, 8, 8, 0}, BalanceRule{}, "[{0 0 1 8}]", true, "[]", "33 % less"},
		{"alone", "0,0,0,0", 2, []uint64{8, 8, 8, 0}, BalanceRule{}, "[]", false, "[]", "no single move"},
	} {
		p, err := Balance(table(t, c.table, 4, c.workers), c.loads, c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(p.Moves) != c.moves || p.Worth != c.worth || fmt.Sprint(p.Heavy) != c.heavy || !strings.Contains(p.Verdict, c.verdict) {
			t.Errorf("%s: moves %v, worth %v, heavy %v, %q; want %s, %v, %s, %q", c.name, p.Moves, p.Worth, p.Heavy, p.Verdict, c.moves, c.worth, c.heavy, c.verdict)
		}
	}
	if _, err := Balance(table(t, "equal", 4, 2), []uint64{1}, BalanceRule{}); err == nil {
		t.Error("took loads of 1 bucket for a table of 4")
	}
}

// loadsOf makes loads of different kinds: even, heavy-tailed, mostly idle.
func loadsOf(r *rand.Rand, size int) []uint64 {
	loads := make([]uint64, size)
	kind := r.IntN(3)
	for i := range loads {
		switch kind {
		case 0:
			loads[i] = 1000
		case 1:
			loads[i] = uint64(1 / (r.Float64() + 1e-5))
		case 2:
			if r.IntN(8) == 0 {
				loads[i] = r.Uint64N(1 << 40)
			}
		}
	}
	return loads
}

func TestBalanceProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worth := 0
	for range 3000 {
		workers, size := 1+r.IntN(9), 1<<(4+r.IntN(6))
		words := make([]string, size)
		for i := range words {
			words[i] = fmt.Sprint(r.IntN(1 + r.IntN(workers)))
		}
		tab, loads := table(t, strings.Join(words, ","), size, workers), loadsOf(r, size)
		rule := BalanceRule{Moves: 1 + r.IntN(size)}
		p, err := Balance(tab, loads, rule)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Balance(tab, loads, rule)
		if err != nil || !slices.Equal(p.Moves, q.Moves) {
			t.Fatalf("two plans for the same loads: %+v, %+v, %v", p, q, err)
		}
		if p.Worth {
			worth++
		}
		checkPlan(t, tab, loads, rule, &p)
	}
	if worth < 100 {
		t.Errorf("only %d plans were worth it: the cases are too easy", worth)
	}
}

func checkPlan(t *testing.T, tab *Table, loads []uint64, rule BalanceRule, p *Plan) {
	t.Helper()
	if len(p.Moves) > rule.Moves {
		t.Fatalf("%d moves, at most %d were allowed", len(p.Moves), rule.Moves)
	}
	moved := map[int]Move{}
	for _, m := range p.Moves {
		if _, twice := moved[m.Bucket]; twice || m.From == m.To || m.Load != loads[m.Bucket] {
			t.Fatalf("move %+v of %+v", m, p.Moves)
		}
		moved[m.Bucket] = m
	}
	sums, owns := make([]uint64, tab.Workers()), make([]int, tab.Workers())
	had := make([]int, tab.Workers())
	for i, n := range loads {
		was, is := tab.Worker(i), p.Table.Worker(i)
		m, ok := moved[i]
		if ok != (was != is) || ok && (m.From != was || m.To != is) {
			t.Fatalf("bucket %d went from %d to %d, the moves say %+v", i, was, is, m)
		}
		sums[is] += n
		owns[is]++
		had[was]++
	}
	for w := range owns {
		if (owns[w] > 0) != (had[w] > 0) {
			t.Fatalf("worker %d owned %d buckets, owns %d now", w, had[w], owns[w])
		}
	}
	if s, err := SpreadOf(p.Table, loads); err != nil || s.Max != p.After.Max || s.Ratio != p.After.Ratio {
		t.Fatalf("the new table spreads %+v (%v), the plan says %+v", s, err, p.After)
	}
	if !slices.Equal(sums, p.After.Loads) || p.After.Max > p.Before.Max || p.After.Max != slices.Max(sums) {
		t.Fatalf("loads %v, the plan says %+v after %+v", sums, p.After, p.Before)
	}
	if len(p.Moves) > 0 && len(p.Moves) < rule.Moves && p.After.Max-slices.Min(ownersLoads(sums, owns)) > 2*slices.Max(loads) {
		t.Fatalf("stopped early: loads %v, greatest bucket %d", sums, slices.Max(loads))
	}
}

func ownersLoads(sums []uint64, owns []int) []uint64 {
	var s []uint64
	for w, n := range owns {
		if n > 0 {
			s = append(s, sums[w])
		}
	}
	return s
}

// Equal loads that lie on one worker are spread evenly, if enough may move.
func TestBalanceReachesEven(t *testing.T) {
	tab := table(t, strings.Repeat("0,", 60)+"1,2,3,3", 64, 4)
	loads := slices.Repeat([]uint64{7}, 64)
	p, err := Balance(tab, loads, BalanceRule{Moves: 64})
	if err != nil {
		t.Fatal(err)
	}
	if p.After.Ratio != 1 || !p.Worth {
		t.Errorf("%+v", p)
	}
}
