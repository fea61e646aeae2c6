package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Spread is the middle and the extremes of some values.
type Spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// SpreadOf returns the spread of values; ok is false when there are none.
func SpreadOf(values []float64) (s Spread, ok bool) {
	if len(values) == 0 {
		return s, false
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return Spread{v[0], (v[(n-1)/2] + v[n/2]) / 2, v[n-1], n}, true
}

// Width is the distance of the extremes as a part of the median.
func (s Spread) Width() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.Max - s.Min) / math.Abs(s.Median)
}

// enough is how many values a spread must have to show anything: two pairs of values from the same
// distribution don't overlap in a third of the cases, two triples in a tenth.
const enough = 3

// Differs says whether two spreads show a difference: they have enough values and don't overlap.
func (s Spread) Differs(o Spread) bool {
	return s.N >= enough && o.N >= enough && (s.Min > o.Max || s.Max < o.Min)
}

// wide is the width from which a row is noisy.
const wide = 0.30

// Finish works out what the rounds amount to: spreads, noise, and ratios to the baselines.
func (f *File) Finish() {
	for i := range f.Rows {
		f.Rows[i].summarize()
	}
	for i := range f.Rows {
		f.Rows[i].compare(f.Rows)
	}
}

// valid returns one figure of the rounds that count; take says whether a round has it.
func (r *Row) valid(take func(*Round) (float64, bool)) []float64 {
	var v []float64
	for i := range r.Rounds {
		if r.Rounds[i].Invalid != "" {
			continue
		}
		if x, ok := take(&r.Rounds[i]); ok {
			v = append(v, x)
		}
	}
	return v
}

func (r *Row) spread(take func(*Round) (float64, bool)) *Spread {
	if s, ok := SpreadOf(r.valid(take)); ok {
		return &s
	}
	return nil
}

func (r *Row) summarize() {
	r.PPS = r.spread(func(x *Round) (float64, bool) { return x.PPS, x.Offered > 0 || x.PPS > 0 })
	r.Gbps = r.spread(func(x *Round) (float64, bool) { return x.Gbps, x.Gbps > 0 })
	r.CPUNs = nil
	if !r.lossy() {
		r.CPUNs = r.spread(priceOf)
	}
	r.summarizeValues()
	r.Noise = r.noise()
}

func priceOf(x *Round) (float64, bool) {
	if x.CPUNs == nil {
		return 0, false
	}
	return *x.CPUNs, true
}

// priceless is the part of lost frames from which a frame has no price.
const priceless = 0.05

// lossy says that too much was lost for a price: a frame that is dropped at once costs the load less than those by which it was
// calibrated, so that too much would be taken off.
func (r *Row) lossy() bool {
	lost, offered := r.losses()
	return float64(lost) > priceless*float64(offered)
}

// losses adds up all rounds.
func (r *Row) losses() (lost, offered uint64) {
	for _, x := range r.Rounds {
		lost, offered = lost+x.Lost, offered+x.Offered
	}
	return lost, offered
}

// summarizeValues makes spreads of the figures that only this scenario has.
func (r *Row) summarizeValues() {
	r.Values = nil
	for _, x := range r.Rounds {
		for name := range x.Values {
			s := r.spread(func(y *Round) (float64, bool) { v, ok := y.Values[name]; return v, ok })
			if s == nil {
				continue
			}
			if r.Values == nil {
				r.Values = map[string]Spread{}
			}
			r.Values[name] = *s
		}
	}
}

// What others may take of the CPUs before a row is noisy, in percent.
const (
	muchSteal   = 2.0
	muchForeign = 10.0
)

func (r *Row) noise() (why []string) {
	if s := r.spread(figure); s != nil && s.Width() > wide {
		why = append(why, fmt.Sprintf("spread %.0f %%", 100*s.Width()))
	}
	steal, foreign, throttled, invalid, reason := 0.0, 0.0, 0.0, 0, ""
	for _, x := range r.Rounds {
		if x.Invalid != "" {
			invalid++
			reason, _, _ = strings.Cut(x.Invalid, ":")
		}
		if x.Noise != nil {
			steal, foreign = max(steal, x.Noise.StealPercent), max(foreign, x.Noise.ForeignPercent)
			throttled += x.Noise.ThrottledMs
		}
	}
	if steal > muchSteal {
		why = append(why, fmt.Sprintf("steal up to %.0f %%", steal))
	}
	if foreign > muchForeign {
		why = append(why, fmt.Sprintf("other processes up to %.0f %%", foreign))
	}
	if throttled > 0 {
		why = append(why, fmt.Sprintf("throttled %.0f ms", throttled))
	}
	if invalid > 0 {
		why = append(why, fmt.Sprintf("%d of %d rounds invalid (%s)", invalid, len(r.Rounds), reason))
	}
	return why
}

// comparable says whether two rows were measured in the same way.
func (r *Row) comparable(o *Row) bool {
	return r.Setup == o.Setup && r.Load == o.Load && r.Sink == o.Sink && r.Size == o.Size && r.Flows == o.Flows && r.IP6 == o.IP6 && r.Rate == o.Rate && r.Variant == o.Variant
}

// inline is the cell of the same datapath that spreads nothing, which others are compared with beside the baselines.
func (r *Row) inline() string {
	path, _, cell := strings.Cut(r.Cell, "/")
	if r.Baseline || !cell {
		return ""
	}
	return path + "/inline"
}

// compare fills in the ratios to the baselines, and to its own datapath's inline cell, among rows. Paced rows all deliver what they are offered: no ratio.
func (r *Row) compare(rows []Row) {
	r.Ratio, r.NoDifference = nil, nil
	own := r.spread(figure)
	if own == nil || r.Rate > 0 {
		return
	}
	for i := range rows {
		b := &rows[i]
		if !b.Baseline && b.Cell != r.inline() || b.Cell == r.Cell || !r.comparable(b) {
			continue
		}
		ratio, ok := ratioTo(r, b)
		if !ok {
			continue
		}
		if r.Ratio == nil {
			r.Ratio = map[string]float64{}
		}
		r.Ratio[b.Cell] = ratio
		if !own.Differs(*b.spread(figure)) {
			r.NoDifference = append(r.NoDifference, b.Cell)
		}
	}
}

// Requests is the name, in Round.Values, of how many were answered a second.
const Requests = "requests/s"

// figure is what rounds are compared by: frames, or else bits, or else requests a second.
func figure(x *Round) (float64, bool) {
	requests, asked := x.Values[Requests]
	switch {
	case x.Offered > 0 || x.PPS > 0:
		return x.PPS, true
	case x.Gbps > 0:
		return x.Gbps, true
	}
	return requests, asked
}

// ratioTo is the median of the ratios of each round to the baseline's same round.
func ratioTo(r, b *Row) (float64, bool) {
	base := map[int]float64{}
	for _, x := range b.Rounds {
		if f, ok := figure(&x); ok && f > 0 && x.Invalid == "" {
			base[x.Round] = f
		}
	}
	ratios := r.valid(func(x *Round) (float64, bool) {
		b, ok := base[x.Round]
		f, is := figure(x)
		return f / b, ok && is
	})
	s, ok := SpreadOf(ratios)
	return s.Median, ok
}

// LatencyOf returns the distribution of a histogram of nanoseconds, nil when it is empty.
func LatencyOf(h *hdrhistogram.Histogram) *Latency {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	q := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1e3 }
	return &Latency{
		Min: float64(h.Min()) / 1e3, Mean: h.Mean() / 1e3, P50: q(50), P90: q(90), P99: q(99), P999: q(99.9),
		Max: float64(h.Max()) / 1e3, SD: h.StdDev() / 1e3,
	}
}

// curve is which percentiles a curve has: evenly spaced in nines.
var curve = [...]float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999}

// CurveOf returns a histogram's curve, as far as its count bears it.
func CurveOf(h *hdrhistogram.Histogram) (c []CurvePoint) {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	for _, p := range curve {
		if float64(h.TotalCount())*(100-p) < 99.99 { // 100, but for rounding
			break // not one frame lies beyond
		}
		c = append(c, CurvePoint{p, float64(h.ValueAtQuantile(p)) / 1e3})
	}
	return c
}
