package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Change is one row of two files.
type Change struct {
	Row     string   `json:"row"`
	What    string   `json:"what"` // figure
	Before  *Spread  `json:"before,omitempty"`
	After   *Spread  `json:"after,omitempty"`
	Ratio   float64  `json:"ratio,omitempty"` // of the medians
	Verdict string   `json:"verdict"`         // higher, lower, noise, only before, only after
	Noise   []string `json:"noise,omitempty"` // of either
}

// Diff is what differs between two files.
type Diff struct {
	Machine  []string `json:"machine,omitempty"` // facts that differ
	Settings []string `json:"settings,omitempty"`
	Changes  []Change `json:"changes"`
}

// Verdicts.
const (
	Higher     = "higher"
	Lower      = "lower"
	NoiseOnly  = "noise" // the spreads overlap, or hardly differ
	OnlyBefore = "only before"
	OnlyAfter  = "only after"
)

// figures are what files are compared by.
var figures = [...]struct {
	name string
	take func(*Row) *Spread
}{
	{"frames/s", func(r *Row) *Spread { return r.PPS }},
	{"Gbit/s", func(r *Row) *Spread {
		if r.PPS != nil {
			return nil // it says nothing else
		}
		return r.Gbps
	}},
	{Requests, func(r *Row) *Spread {
		if s, ok := r.Values[Requests]; ok {
			return &s
		}
		return nil
	}},
	{"CPU ns/frame", func(r *Row) *Spread { return r.CPUNs }},
	{"p99 µs", func(r *Row) *Spread { return r.spread(func(x *Round) (float64, bool) { return p99(x) }) }},
}

func p99(x *Round) (float64, bool) {
	if x.Latency == nil {
		return 0, false
	}
	return x.Latency.P99, true
}

// Compare tells what changed from a to b from what is noise. Rows are the same when cell and way of measuring are.
func Compare(a, b *File) (d Diff, err error) {
	if d.Machine, err = factsDiff(a.Machine, b.Machine); err != nil {
		return d, err
	}
	if d.Settings, err = factsDiff(a.Settings, b.Settings); err != nil {
		return d, err
	}
	for i := range a.Rows {
		d.Changes = append(d.Changes, changes(&a.Rows[i], find(b, &a.Rows[i]))...)
	}
	for i := range b.Rows {
		if find(a, &b.Rows[i]) == nil {
			d.Changes = append(d.Changes, changes(nil, &b.Rows[i])...)
		}
	}
	return d, nil
}

func find(f *File, r *Row) *Row {
	for i := range f.Rows {
		if o := &f.Rows[i]; o.Cell == r.Cell && o.comparable(r) {
			return o
		}
	}
	return nil
}

// changes compares all figures of two rows. Of a row that is in one file only, it names the first figure.
func changes(a, b *Row) (list []Change) {
	for _, f := range figures {
		c := Change{What: f.name}
		if a != nil {
			c.Row, c.Before, c.Noise = a.label()+": "+a.title(), f.take(a), a.Noise
		}
		if b != nil {
			c.Row, c.After = b.label()+": "+b.title(), f.take(b)
			c.Noise = slices.Concat(c.Noise, b.Noise)
		}
		if c.Before != nil || c.After != nil {
			c.judge()
			list = append(list, c)
			if a == nil || b == nil {
				break
			}
		}
	}
	return list
}

// hardly is the part by which figures must differ: paced rows deliver what they are offered, to the frame.
const hardly = 0.01

func (c *Change) judge() {
	switch {
	case c.Before == nil:
		c.Verdict = OnlyAfter
		return
	case c.After == nil:
		c.Verdict = OnlyBefore
		return
	case !c.Before.Differs(*c.After), math.Abs(c.After.Median-c.Before.Median) < hardly*math.Abs(c.Before.Median):
		c.Verdict = NoiseOnly
	case c.After.Median > c.Before.Median:
		c.Verdict = Higher
	default:
		c.Verdict = Lower
	}
	if c.Before.Median != 0 {
		c.Ratio = c.After.Median / c.Before.Median
	}
}

// factsDiff names the facts whose values aren't the same.
func factsDiff(a, b any) (list []string, err error) {
	fa, err := facts(a)
	if err != nil {
		return nil, err
	}
	fb, err := facts(b)
	if err != nil {
		return nil, err
	}
	values := func(facts []fact) map[string]string {
		m := map[string]string{}
		for _, f := range facts {
			m[f.Name] = f.Value
		}
		return m
	}
	va, vb := values(fa), values(fb)
	for _, f := range slices.Concat(fa, fb) {
		if strings.HasPrefix(f.Name, "load_limit") { // measured, not set
			continue
		}
		if x, y := va[f.Name], vb[f.Name]; x != y {
			line := fmt.Sprintf("%s: %s → %s", f.Name, orNone(x), orNone(y))
			if !slices.Contains(list, line) {
				list = append(list, line)
			}
		}
	}
	return list, nil
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// Text writes the changes for people, noise last.
func (d Diff) Text(w io.Writer) error {
	for _, l := range slices.Concat(d.Machine, d.Settings) {
		fmt.Fprintln(w, "differs:", l)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "VERDICT\tRATIO\tFIGURE\tBEFORE\tAFTER\tROW\tNOISE")
	sorted := slices.Clone(d.Changes)
	slices.SortStableFunc(sorted, func(a, b Change) int { return rank(a) - rank(b) })
	for _, c := range sorted {
		ratio := ""
		if c.Ratio != 0 {
			ratio = fmt.Sprintf("%.2f ×", c.Ratio)
		}
		noise := ""
		if len(c.Noise) > 0 {
			noise = "noisy"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Verdict, ratio, c.What, c.Before.text(), c.After.text(), c.Row, noise)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if slices.ContainsFunc(d.Changes, func(c Change) bool { return len(c.Noise) > 0 }) {
		fmt.Fprintln(w, "Noisy rows were disturbed in one of the runs (see its own table): don't conclude from them.")
	}
	return nil
}

func rank(c Change) int {
	return slices.Index([]string{Lower, Higher, OnlyBefore, OnlyAfter, NoiseOnly}, c.Verdict)
}

// text is the median and the extremes.
func (s *Spread) text() string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", Rate(s.Median), Rate(s.Min), Rate(s.Max))
}
