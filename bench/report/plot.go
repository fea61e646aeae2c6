package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot is one picture of the page.
type Plot struct {
	Title string
	SVG   template.HTML // self-contained, with title and description
	Keys  []Key         // what the numbers in it mean
}

// Key explains a number in a plot.
type Key struct {
	Number int
	Color  string
	Name   string
}

// Colors that stand out from white and from black.
var palette = [...]string{"#3f7fc4", "#c96f1e", "#2f9266", "#c0504d", "#8562c4", "#8a7a35", "#2890a0", "#b0569c"}

// Of the bars.
const (
	barCell     = "#3f7fc4"
	barBaseline = "#8b8f98"
)

// sans is the variant of the plotter's font that has the widths of the fonts that fontFamily names.
const (
	sans       = "Sans"
	fontFamily = "font-family:'Liberation Sans',Arial,Helvetica,sans-serif"
)

// hex reads a color of ours.
func hex(s string) color.Color {
	var c color.NRGBA
	c.A = 255
	fmt.Sscanf(s, "#%02x%02x%02x", &c.R, &c.G, &c.B)
	return c
}

func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, f := range []*font.Font{&p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		f.Variant = sans
	}
	return p
}

// svg draws p. Black becomes the page's text color, so that one picture serves light and dark.
func svg(p *plot.Plot, width, height vg.Length, title, desc string) (template.HTML, error) {
	c := vgsvg.NewWith(vgsvg.UseWH(width, height))
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %s: %w", title, err)
	}
	s := b.String()
	start := strings.Index(s, "<svg")
	if start < 0 {
		return "", fmt.Errorf("draw %s: no svg element", title)
	}
	s = plainFont.ReplaceAllString(s[start:], fontFamily)
	s = strings.ReplaceAll(s, "#000000", "currentColor")
	head, body, _ := strings.Cut(s, ">")
	head = strings.Replace(head, "<svg", `<svg role="img" aria-label="`+html.EscapeString(title)+`"`, 1)
	return template.HTML(head + "><title>" + html.EscapeString(title) + "</title><desc>" + html.EscapeString(desc) + "</desc>" + body), nil
}

// plainFont is what vgsvg names the fonts that it measures text with.
var plainFont = regexp.MustCompile(`font-family:[^;"]*`)

// bars draws throughput: medians, and the extremes as whiskers. Sockets have bits or requests, not frames.
func (g Group) bars() (*Plot, error) {
	if p, err := g.barsOf("million frames/s", 1e6, func(r *Row) *Spread { return r.PPS }); p != nil || err != nil {
		return p, err
	}
	if p, err := g.barsOf("Gbit/s", 1, func(r *Row) *Spread { return r.Gbps }); p != nil || err != nil {
		return p, err
	}
	return g.barsOf("thousand requests/s", 1e3, func(r *Row) *Spread {
		if s, ok := r.Values[Requests]; ok {
			return &s
		}
		return nil
	})
}

func (g Group) barsOf(unit string, scale float64, take func(*Row) *Spread) (*Plot, error) {
	var rows []*Row
	for _, r := range g.Rows {
		if take(r) != nil {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	n := len(rows)
	p := newPlot(unit, "")
	p.X.Min = 0
	cells, base := make(plotter.Values, n), make(plotter.Values, n)
	whiskers := spreads{}
	names := make([]string, n)
	for i, r := range rows {
		at := n - 1 - i // the first on top
		names[at] = r.label()
		s := *take(r)
		s.Min, s.Median, s.Max = s.Min/scale, s.Median/scale, s.Max/scale
		if r.Baseline {
			base[at] = s.Median
		} else {
			cells[at] = s.Median
		}
		whiskers = append(whiskers, spread{at, s})
	}
	for _, s := range []struct {
		v plotter.Values
		c string
	}{{cells, barCell}, {base, barBaseline}} {
		b, err := plotter.NewBarChart(s.v, vg.Points(11))
		if err != nil {
			return nil, err
		}
		b.Horizontal, b.Color, b.LineStyle.Width = true, hex(s.c), 0
		p.Add(b)
	}
	e, err := plotter.NewXErrorBars(whiskers)
	if err != nil {
		return nil, err
	}
	p.Add(e)
	p.NominalY(names...)
	p.Y.Min, p.Y.Max, p.Y.Padding = -0.8, float64(n)-0.2, vg.Points(8)
	title := "Throughput in " + unit + ": " + g.Title
	s, err := svg(p, 700, vg.Length(60+20*n), title, "Bars are medians, whiskers the least and the greatest round. Grey bars, marked *, are baselines. The table has the figures.")
	return &Plot{Title: "Throughput", SVG: s}, err
}

// spread is one whisker.
type spread struct {
	at int
	Spread
}

type spreads []spread

func (s spreads) Len() int                { return len(s) }
func (s spreads) XY(i int) (x, y float64) { return s[i].Median, float64(s[i].at) }
func (s spreads) XError(i int) (low, hi float64) {
	return s[i].Min - s[i].Median, s[i].Max - s[i].Median
}

// series is a line of a plot.
type series struct {
	name string
	xys  plotter.XYs
}

// labelPlaces is at how many points from a line's end its number may stand.
const labelPlaces = 6

// lines adds numbered lines with points.
func lines(p *plot.Plot, list []series) (keys []Key, err error) {
	for i, s := range list {
		c := palette[i%len(palette)]
		l, points, err := plotter.NewLinePoints(s.xys)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = hex(c), 1.5
		if i >= len(palette) { // the colors' second turn
			l.Dashes = []vg.Length{5, 3}
		}
		points.Color, points.Shape, points.Radius = hex(c), draw.CircleGlyph{}, 2.5
		// Where lines lie upon each other, numbers at their ends would, too: each has another place.
		at := s.xys[len(s.xys)-1-i%min(len(s.xys), labelPlaces)]
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{at}, Labels: []string{fmt.Sprint(i + 1)}})
		if err != nil {
			return nil, err
		}
		label.TextStyle[0].Font.Variant, label.TextStyle[0].Color = sans, hex(c)
		label.Offset = vg.Point{X: 4, Y: 4 - 14*vg.Length(i/labelPlaces%2)}
		p.Add(l, points, label)
		keys = append(keys, Key{i + 1, c, s.name})
	}
	return keys, nil
}

// latencies draws percentile curves; the axis is even in nines.
func (g Group) latencies() (*Plot, error) {
	var list []series
	for _, r := range g.Rows {
		var xys plotter.XYs
		for _, c := range r.Curve {
			if c.Percentile > 0 && c.Micros > 0 {
				xys = append(xys, plotter.XY{X: nines(c.Percentile), Y: c.Micros})
			}
		}
		if len(xys) > 0 {
			list = append(list, series{r.label(), xys})
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	p := newPlot("percentile", "µs")
	var ticks []plot.Tick
	for _, v := range []float64{50, 90, 99, 99.9, 99.99, 99.999} {
		ticks = append(ticks, plot.Tick{Value: nines(v), Label: fmt.Sprint(v)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(plotter.NewGrid())
	keys, err := lines(p, list)
	if err != nil {
		return nil, err
	}
	decades(&p.Y)
	s, err := svg(p, 700, 360, "Latency: "+g.Title, "For each part of the frames, the latency that it didn't exceed, from the time each frame was due. The table has the figures.")
	return &Plot{Title: "Latency", SVG: s, Keys: keys}, err
}

func nines(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

// decades makes an axis, whose values are greater than 0, logarithmic and takes it to whole decades, which it names.
func decades(a *plot.Axis) {
	low, high := math.Floor(math.Log10(a.Min)), math.Ceil(math.Log10(a.Max))
	high = max(high, low+1)
	a.Min, a.Max, a.Scale = math.Pow(10, low), math.Pow(10, high), plot.LogScale{}
	var ticks []plot.Tick
	for e := low; e <= high; e++ {
		ticks = append(ticks, plot.Tick{Value: math.Pow(10, e), Label: decade(int(e))})
		for k := 2.0; k < 10 && e < high; k++ {
			ticks = append(ticks, plot.Tick{Value: k * math.Pow(10, e)})
		}
	}
	a.Tick.Marker = plot.ConstantTicks(ticks)
}

// decade names a power of ten.
func decade(e int) string {
	switch {
	case e >= 6:
		return strconv.Itoa(int(math.Pow10(e-6))) + " M"
	case e >= 3:
		return strconv.Itoa(int(math.Pow10(e-3))) + " k"
	}
	return strconv.FormatFloat(math.Pow10(e), 'f', -1, 64)
}

// price draws CPU time a frame against the rate delivered, a line for each cell in one way of loading.
func (f *File) price() (*Plot, error) {
	var list []series
	index := map[string]int{}
	for i := range f.Rows {
		r := &f.Rows[i]
		if r.CPUNs == nil || r.PPS == nil || r.PPS.Median <= 0 || r.CPUNs.Median <= 0 {
			continue
		}
		name := r.label() + ", " + r.Load
		k, ok := index[name]
		if !ok {
			k = len(list)
			index[name], list = k, append(list, series{name: name})
		}
		list[k].xys = append(list[k].xys, plotter.XY{X: r.PPS.Median, Y: r.CPUNs.Median})
	}
	if len(list) == 0 {
		return nil, nil
	}
	p := newPlot("frames/s delivered", "CPU ns for each")
	p.Add(plotter.NewGrid())
	keys, err := lines(p, list)
	if err != nil {
		return nil, err
	}
	decades(&p.X)
	decades(&p.Y)
	s, err := svg(p, 700, 360, "CPU price of a frame against the rate", "Time in which the used CPUs weren't idle, for each frame delivered, less what the load costs by itself. A cell whose price is lost in the noise (0 or less) has no point. The tables have the figures.")
	return &Plot{Title: "Price of a frame against the rate", SVG: s, Keys: keys}, err
}

// evenTicks is about ten ticks at round numbers.
type evenTicks struct{}

// Ticks implements plot.Ticker.
func (evenTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow10(int(math.Floor(math.Log10((high - low) / 5))))
	for _, k := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if (high-low)/step <= 10 {
			break
		}
		step *= k
	}
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// timeline draws arrivals while settings changed.
func (r *Row) timeline() (*Plot, error) {
	if r.Switch == nil || len(r.Switch.Frames) == 0 || r.Switch.SlotMs <= 0 {
		return nil, nil
	}
	whole := r.Switch.Frames[:max(1, len(r.Switch.Frames)-1)] // the last slot isn't over when the load is
	xys := make(plotter.XYs, len(whole))
	for i, n := range whole {
		xys[i] = plotter.XY{X: float64(i) * r.Switch.SlotMs, Y: float64(n) / r.Switch.SlotMs}
	}
	p := newPlot("ms", "thousand frames/s")
	l, err := plotter.NewLine(xys)
	if err != nil {
		return nil, err
	}
	l.Color, l.StepStyle = hex(barCell), plotter.PostStep
	p.Add(plotter.NewGrid(), l)
	p.Y.Min, p.Y.Max = 0, 1.1*p.Y.Max
	p.X.Tick.Marker = evenTicks{}
	for _, e := range r.Switch.Events {
		v, err := plotter.NewLine(plotter.XYs{{X: e.AtMs, Y: 0}, {X: e.AtMs, Y: p.Y.Max}})
		if err != nil {
			return nil, err
		}
		v.Color, v.Dashes = hex(palette[3]), []vg.Length{3, 3}
		p.Add(v)
	}
	s, err := svg(p, 700, 260, "Switch timeline: "+r.Cell, "Arrivals over time. Dashed lines are the changes. The table has what they cost.")
	return &Plot{Title: "Switch timeline of " + r.Cell, SVG: s}, err
}
