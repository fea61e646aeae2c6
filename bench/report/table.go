package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// ratios is which baseline the table shows a ratio to: the first of these that a row has.
var ratios = [...]string{"bridge", "veth"}

// Text writes f for people: one table for each way of measuring, and what is to be known of it.
func (f *File) Text(w io.Writer) error {
	for i, g := range f.Groups() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, g.Title)
		var text strings.Builder
		tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		for _, line := range g.Table() {
			fmt.Fprintln(tw, "  "+strings.Join(line, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		for line := range strings.Lines(text.String()) {
			fmt.Fprintln(w, strings.TrimRight(line, " \n"))
		}
	}
	fmt.Fprintln(w)
	for _, n := range f.Notes() {
		fmt.Fprintln(w, n)
	}
	return nil
}

// Group is rows that may be compared.
type Group struct {
	Title string
	Rows  []*Row
}

// Groups returns the rows that were measured, by the way in which they were.
func (f *File) Groups() (groups []Group) {
	for i := range f.Rows {
		r := &f.Rows[i]
		if len(r.Rounds) == 0 {
			continue
		}
		k := slices.IndexFunc(groups, func(g Group) bool { return g.Rows[0].comparable(r) })
		if k < 0 {
			k, groups = len(groups), append(groups, Group{Title: r.title()})
		}
		groups[k].Rows = append(groups[k].Rows, r)
	}
	return groups
}

// title says how rows like r were measured.
func (r *Row) title() string {
	parts := []string{"set-up " + r.Setup}
	if r.Load != "" {
		parts = append(parts, r.Load+" load")
	}
	if r.Sink != "" {
		parts = append(parts, r.Sink+" sink")
	}
	switch {
	case r.Size > 0:
		parts = append(parts, fmt.Sprintf("%d-byte frames", r.Size))
	case r.Load != "socket":
		parts = append(parts, "IMIX")
	}
	if r.Flows > 0 {
		flows := fmt.Sprintf("%d flows", r.Flows)
		if r.IP6 > 0 {
			flows += fmt.Sprintf(" (%d %% IPv6)", r.IP6)
		}
		parts = append(parts, flows)
	}
	switch {
	case r.Rate > 0:
		parts = append(parts, Rate(r.Rate)+" frames/s intended")
	case r.Load != "socket" && r.Variant == "":
		parts = append(parts, "as fast as it goes")
	}
	if r.Variant != "" {
		parts = append(parts, r.Variant)
	}
	return strings.Join(parts, ", ")
}

// Table returns head and lines. Columns that no row has are left out.
func (g Group) Table() [][]string {
	cols := slices.DeleteFunc(columns(g.Rows), func(c column) bool {
		return !slices.ContainsFunc(g.Rows, func(r *Row) bool { return c.cell(r) != "" })
	})
	var head []string
	for _, c := range cols {
		head = append(head, c.name)
	}
	out := [][]string{head}
	for _, r := range g.Rows {
		var line []string
		for _, c := range cols {
			line = append(line, c.cell(r))
		}
		out = append(out, line)
	}
	return out
}

type column struct {
	name string
	cell func(*Row) string
}

func columns(rows []*Row) []column {
	rate := func(s *Spread) string {
		if s == nil {
			return ""
		}
		return Rate(s.Median)
	}
	cols := []column{
		{"CELL", (*Row).label},
		{"FRAMES/S", func(r *Row) string { return rate(r.PPS) }},
		{"MIN–MAX", func(r *Row) string {
			if r.PPS == nil {
				return ""
			}
			return r.extremes()
		}},
		{"GBIT/S", func(r *Row) string { return number(r.Gbps, "%.2f", 0.01) }},
		{"REQUESTS/S", func(r *Row) string {
			s, ok := r.Values[Requests]
			if !ok {
				return ""
			}
			return Rate(s.Median)
		}},
		{"MIN–MAX", func(r *Row) string {
			if r.PPS != nil {
				return ""
			}
			return r.extremes()
		}},
		{"LOST", (*Row).lost},
		{"REORDERED", func(r *Row) string { return r.sum(func(x *Round) uint64 { return x.Reordered }) }},
		{"DUPLICATED", func(r *Row) string { return r.sum(func(x *Round) uint64 { return x.Duplicated }) }},
		{"CPU ns/FRAME", (*Row).price},
		{"MIN µs", latency(func(l *Latency) float64 { return l.Min })},
		{"AVG µs", latency(func(l *Latency) float64 { return l.Mean })},
		{"p50 µs", latency(func(l *Latency) float64 { return l.P50 })},
		{"p90 µs", latency(func(l *Latency) float64 { return l.P90 })},
		{"p99 µs", latency(func(l *Latency) float64 { return l.P99 })},
		{"p99.9 µs", latency(func(l *Latency) float64 { return l.P999 })},
		{"MAX µs", latency(func(l *Latency) float64 { return l.Max })},
		{"STDDEV µs", latency(func(l *Latency) float64 { return l.SD })},
	}
	for _, name := range valueNames(rows) {
		cols = append(cols, column{strings.ToUpper(name[:1]) + name[1:], func(r *Row) string {
			s, ok := r.Values[name]
			if !ok {
				return ""
			}
			return value(s.Median)
		}})
	}
	return append(cols, column{"RATIO", (*Row).ratio}, column{"TO INLINE", (*Row).toInline}, column{"NOISE", func(r *Row) string { return strings.Join(r.Noise, ", ") }})
}

func value(v float64) string {
	if math.Abs(v) >= 1000 {
		return Rate(v)
	}
	return fmt.Sprintf("%.3g", v)
}

func valueNames(rows []*Row) []string {
	all := map[string]bool{}
	for _, r := range rows {
		for n := range r.Values {
			all[n] = n != Requests // it has its own column
		}
	}
	maps.DeleteFunc(all, func(_ string, shown bool) bool { return !shown })
	return slices.Sorted(maps.Keys(all))
}

func (r *Row) label() string {
	if r.Baseline {
		return r.Cell + " *"
	}
	return r.Cell
}

func (r *Row) sum(take func(*Round) uint64) string {
	n := uint64(0)
	for i := range r.Rounds {
		n += take(&r.Rounds[i])
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// lost is a part of what was offered.
func (r *Row) lost() string {
	lost, offered := r.losses()
	switch {
	case offered == 0:
		return ""
	case lost == 0:
		return "0"
	}
	return fmt.Sprintf("%.2g %%", 100*float64(lost)/float64(offered))
}

// ratio is that to the first baseline of the usual ones.
func (r *Row) ratio() string {
	for _, b := range ratios {
		x, ok := r.Ratio[b]
		if !ok {
			continue
		}
		return fmt.Sprintf("%.2f × %s%s", x, b, r.unproven(b))
	}
	return ""
}

// unproven marks a ratio to a cell whose spread overlaps. Too few rounds show no difference at all, which a note says.
func (r *Row) unproven(cell string) string {
	if s := r.spread(figure); s.N < enough || !slices.Contains(r.NoDifference, cell) {
		return ""
	}
	return ", no difference shown"
}

// toInline is the ratio to the inline cell of the same datapath.
func (r *Row) toInline() string {
	x, ok := r.Ratio[r.inline()]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.2f ×%s", x, r.unproven(r.inline()))
}

// extremes are those of the figure by which rows are compared.
func (r *Row) extremes() string {
	s := r.spread(figure)
	switch {
	case s == nil || s.N < 2:
		return ""
	case r.PPS == nil && r.Gbps != nil:
		return fmt.Sprintf("%.2f–%.2f", s.Min, s.Max)
	}
	return Rate(s.Min) + "–" + Rate(s.Max)
}

// price is what a frame cost; the load's own cost, which is taken off, isn't the same in every run.
func (r *Row) price() string {
	switch {
	case r.unpriced():
		return "–"
	case r.CPUNs != nil && r.CPUNs.Median <= 0:
		return "≤ 0"
	}
	return number(r.CPUNs, "%.0f", 0)
}

// unpriced says that a price was measured and means nothing.
func (r *Row) unpriced() bool { return r.lossy() && r.spread(priceOf) != nil }

func number(s *Spread, format string, least float64) string {
	if s == nil || s.Median < least {
		return ""
	}
	return fmt.Sprintf(format, s.Median)
}

func latency(take func(*Latency) float64) func(*Row) string {
	return func(r *Row) string {
		if r.Latency == nil {
			return ""
		}
		us := take(r.Latency)
		if us >= 999.5 {
			return fmt.Sprintf("%.0f", us)
		}
		return fmt.Sprintf("%.1f", us)
	}
}

// Rate writes a number a second for people: 1.23 M, 456 k, 789.
func Rate(pps float64) string {
	switch {
	case pps >= 999_500:
		return fmt.Sprintf("%.2f M", pps/1e6)
	case pps >= 9_995:
		return fmt.Sprintf("%.0f k", pps/1e3)
	case pps >= 999.5:
		return fmt.Sprintf("%.1f k", pps/1e3)
	}
	return fmt.Sprintf("%.0f", pps)
}

// Notes says what is to be known of the tables, a line each.
func (f *File) Notes() (notes []string) {
	s := f.Settings
	if f.Partial {
		notes = append(notes, "INTERRUPTED: only what was finished is shown.")
	}
	if s.Rounds > 0 {
		notes = append(notes, fmt.Sprintf("Rounds: %d, every cell once in each, trials of %g s. Medians; * is a baseline; ratios are of the same round.", s.Rounds, s.Seconds))
	}
	if s.Rounds > 0 && s.Rounds < enough {
		notes = append(notes, fmt.Sprintf("Fewer than %d rounds show no difference.", enough))
	}
	notes = append(notes, fmt.Sprintf("CPUs: %s generate, %s forward, the time of %s counts.", s.CPUs.Load, s.CPUs.Forward, s.CPUs.Used))
	priced := slices.ContainsFunc(f.Rows, func(r Row) bool { return r.spread(priceOf) != nil })
	for _, way := range slices.Sorted(maps.Keys(s.LoadLimit)) {
		l := s.LoadLimit[way]
		off := ""
		if priced {
			off = ", taken off the CPU column"
		}
		notes = append(notes, fmt.Sprintf("The load by itself (%s): %s frames/s, %.0f ns a frame%s.", way, Rate(l.PPS), l.FrameNs, off))
	}
	if s.Seconds < 2 && priced {
		notes = append(notes, "Trials shorter than 2 s: the kernel counts CPU time in ticks, so the CPU column is coarse.")
	}
	if slices.ContainsFunc(f.Rows, func(r Row) bool { return r.unpriced() }) {
		notes = append(notes, fmt.Sprintf("A dash in the CPU column: more than %.0f %% were lost, and frames that are dropped at once cost the load less than those it was measured with: no price can be given.", 100*priceless))
	}
	notes = append(notes, f.shared()...)
	notes = append(notes, fmt.Sprintf("Machine: %s, CPUs %s, Linux %s; during the run: %s.", f.Machine.CPUModel, f.Machine.Online, f.Machine.Kernel, f.Run))
	return append(notes, f.refusals()...)
}

// shared names the rows whose parts share a CPU.
func (f *File) shared() (notes []string) {
	by, measured := map[string][]string{}, map[string]bool{}
	for _, r := range f.Rows {
		if len(r.Rounds) > 0 {
			measured[r.Cell] = true
		}
		if r.Shares != "" && len(r.Rounds) > 0 && !slices.Contains(by[r.Shares], r.Cell) {
			by[r.Shares] = append(by[r.Shares], r.Cell)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(by)) {
		rows := strings.Join(by[s], ", ")
		if len(by[s]) == len(measured) && len(measured) > 1 {
			rows = "all"
		}
		notes = append(notes, fmt.Sprintf("Shared by %s (%s).", s, rows))
	}
	return notes
}

// refusals names what couldn't be measured, each reason once.
func (f *File) refusals() (notes []string) {
	for _, r := range f.Rows {
		line := fmt.Sprintf("Not measured: %s (%s load): %s", r.Cell, r.Load, strings.ReplaceAll(r.Refused, "\n", "; "))
		if r.Refused != "" && !slices.Contains(notes, line) {
			notes = append(notes, line)
		}
	}
	return notes
}
