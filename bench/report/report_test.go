package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/epair-net/epair/bench/machine"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want Spread
		wide float64
	}{
		{[]float64{5}, Spread{5, 5, 5, 1}, 0},
		{[]float64{3, 1, 2}, Spread{1, 2, 3, 3}, 1},
		{[]float64{4, 1, 2, 3}, Spread{1, 2.5, 4, 4}, 1.2},
		{[]float64{-1, -3, -2}, Spread{-3, -2, -1, 3}, 1},
		{[]float64{0, 0}, Spread{0, 0, 0, 2}, 0},
	} {
		got, ok := SpreadOf(c.in)
		if !ok || got != c.want || got.Width() != c.wide {
			t.Errorf("%v: %+v, width %g", c.in, got, got.Width())
		}
	}
	if _, ok := SpreadOf(nil); ok {
		t.Error("nothing has a spread")
	}
}

func TestDiffers(t *testing.T) {
	low, high := Spread{1, 2, 3, 3}, Spread{4, 5, 6, 3}
	for _, c := range []struct {
		a, b Spread
		want bool
	}{
		{low, high, true}, {high, low, true}, {low, low, false},
		{low, Spread{3, 4, 5, 3}, false}, // they touch
		{Spread{1, 1, 1, 2}, high, false}, {low, Spread{9, 9, 9, 1}, false},
	} {
		if c.a.Differs(c.b) != c.want {
			t.Errorf("%v %v: not %v", c.a, c.b, c.want)
		}
	}
}

func rounds(pps ...float64) (list []Round) {
	for i, p := range pps {
		list = append(list, Round{Round: i + 1, PPS: p, Offered: 1000, Gbps: p / 1e6})
	}
	return list
}

// sample is a file with all that a file can have.
func sample() *File {
	price := func(list []Round, ns float64) []Round {
		for i := range list {
			list[i].CPUNs = &ns
		}
		return list
	}
	lat := func(us float64) *Latency {
		return &Latency{Min: us / 10, Mean: us, P50: us, P90: 2 * us, P99: 3 * us, P999: 4 * us, Max: 5 * us, SD: us / 2}
	}
	curve := []CurvePoint{{50, 10}, {90, 20}, {99, 31}, {99.9, 40}}
	f := &File{
		Schema: Schema, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: machine.Facts{CPUModel: "Some CPU", Online: "0-3", CPUs: "0-3", Kernel: "6.18", Arch: "amd64", Go: "go1.26", MaxProcs: 4, Version: "v1"},
		Run:     machine.Noise{StealPercent: 0.5}, Command: []string{"epair", "bench", "compare"},
		Settings: Settings{
			Scenario: "compare", Rounds: 5, Seconds: 2, Seed: 1, CPUs: Placement{"0-3", "0", "1-3"},
			LoadLimit: map[string]LoadCost{"frame": {4e6, 200, 40}},
		},
		Rows: []Row{
			{Cell: "bridge", Baseline: true, Setup: "a", Load: "frame", Size: 64, Flows: 256, Rounds: price(rounds(4e5, 4.1e5, 3.9e5, 4e5, 4.2e5), 2000)},
			{Cell: "xdp/inline", Setup: "a", Load: "frame", Size: 64, Flows: 256, Shares: "load and forwarder", Why: []string{"as asked"},
				Offloads: map[string][]string{"load": {"rx-gro"}}, Rounds: price(rounds(2e6, 2.1e6, 1.9e6, 2e6, 2e6), 300)},
			{Cell: "user-tap/pool", Setup: "a", Load: "frame", Size: 64, Flows: 256, Rounds: price(rounds(3e5, 4.05e5, 5e5, 4e5, 4e5), 2500)},
			{Cell: "xdp/inline", Setup: "a", Load: "frame", Size: 64, Flows: 256, Rate: 50e3, Rounds: price(rounds(5e4, 5e4, 5e4), 900), Latency: lat(10), Curve: curve},
			{Cell: "xdp/pool", Setup: "a", Load: "frame", Size: 64, Flows: 256, Variant: "switch", Rounds: rounds(5e4),
				Switch: &Switch{SlotMs: 8, Frames: []uint64{400, 400, 0, 800, 400}, Events: []SwitchEvent{{AtMs: 15, TookMs: 3, What: "mode inline"}}}},
			{Cell: "ovs", Baseline: true, Setup: "a", Load: "frame", Size: 64, Flows: 256, Refused: "not installed", Commands: [][]string{{"ovs-vswitchd", "<x>"}}},
		},
	}
	f.Rows[2].Rounds[4].Noise = &machine.Noise{StealPercent: 9}
	f.Rows[3].Rounds[1].Invalid = "load fell short: 1 of 2"
	f.Rows[4].Rounds[0].Values = map[string]float64{"blocked ms": 1.5}
	f.Finish()
	return f
}

func TestFinish(t *testing.T) {
	f := sample()
	x := f.Rows[1]
	if *x.PPS != (Spread{1.9e6, 2e6, 2.1e6, 5}) || *x.CPUNs != (Spread{300, 300, 300, 5}) || len(x.NoDifference) != 0 {
		t.Errorf("%+v %+v %v", x.PPS, x.CPUNs, x.NoDifference)
	}
	// Each round's ratio is to the baseline of that round: 5, 5.12, 4.87, 5, 4.76.
	if r := x.Ratio["bridge"]; math.Abs(r-5) > 1e-9 {
		t.Errorf("ratio %g", r)
	}
	tap := f.Rows[2]
	if !reflect.DeepEqual(tap.NoDifference, []string{"bridge"}) || !reflect.DeepEqual(tap.Noise, []string{"spread 50 %", "steal up to 9 %"}) {
		t.Errorf("%v %v", tap.NoDifference, tap.Noise)
	}
	if paced := f.Rows[3]; paced.PPS.N != 2 || paced.Ratio != nil || len(paced.Noise) != 1 {
		t.Errorf("an invalid round counts: %+v %v %v", paced.PPS, paced.Ratio, paced.Noise)
	}
	if f.Rows[0].Ratio != nil || f.Rows[5].PPS != nil {
		t.Errorf("%v %v", f.Rows[0].Ratio, f.Rows[5].PPS)
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update shows how); got:\n%s", path, got)
	}
}

func TestSchema(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", b.Bytes())
	path := filepath.Join(t.TempDir(), "r.json")
	if err := WriteFile(path, sample().Write); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := sample(); !reflect.DeepEqual(back, want) {
		t.Errorf("read back: %+v\nwant %+v", back, want)
	}
	// The keys that scripts rely on.
	var raw struct {
		Rows []map[string]json.RawMessage `json:"rows"`
	}
	if err := json.Unmarshal(b.Bytes(), &raw); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"cell", "baseline", "setup", "size", "flows", "rounds", "pps", "gbps", "ratio"} {
		if _, ok := raw.Rows[1][k]; !ok {
			t.Errorf("no key %q", k)
		}
	}
	if _, ok := raw.Rows[1]["latency_us"]; ok {
		t.Error("a row without latency has the key")
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"no": "", "json": "{", "schema": `{"schema":"other/1"}`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWriteFileIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	f := sample()
	bad := math.NaN()
	f.Rows[0].Rounds[0].PPS = bad
	if err := WriteFile(filepath.Join(dir, "x"), f.Write); err == nil {
		t.Error("wrote what JSON can't hold")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Text(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", b.Bytes())
}

func TestDiff(t *testing.T) {
	a, b := sample(), sample()
	b.Machine.Kernel = "6.19"
	for i := range b.Rows[1].Rounds {
		b.Rows[1].Rounds[i].PPS *= 1.5
	}
	b.Rows[0].Rounds[2].PPS *= 1.02
	b.Rows = append(b.Rows[:2], b.Rows[3:]...)
	b.Finish()
	d, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Machine, []string{"kernel: 6.18 → 6.19"}) || d.Settings != nil {
		t.Errorf("%v %v", d.Machine, d.Settings)
	}
	verdicts := map[string]string{}
	for _, c := range d.Changes {
		verdicts[strings.Split(c.Row, ":")[0]+" "+c.What] += c.Verdict
	}
	for k, want := range map[string]string{
		"xdp/inline frames/s": Higher + NoiseOnly, "bridge * frames/s": NoiseOnly, "user-tap/pool frames/s": OnlyBefore, "bridge * CPU ns/frame": NoiseOnly,
	} {
		if verdicts[k] != want {
			t.Errorf("%s: %q, want %q", k, verdicts[k], want)
		}
	}
	back, err := Compare(b, a)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := back.Text(&text); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(text.String(), "\n"); !strings.HasPrefix(lines[0], "differs: kernel") || !strings.HasPrefix(lines[2], Lower+"  ") || !strings.Contains(text.String(), OnlyAfter) {
		t.Errorf("got:\n%s", &text)
	}
}

// A cell that spreads is compared with its datapath's inline cell, too; and a price needs most frames delivered.
func TestToInlineAndPrices(t *testing.T) {
	row := func(cell string, pps float64, lost uint64) Row {
		r, ns := Row{Cell: cell, Load: "skb"}, -5.0
		for i := range 3 {
			r.Rounds = append(r.Rounds, Round{Round: i + 1, PPS: pps + float64(i)*0.1, Offered: 1000, Lost: lost, CPUNs: &ns})
		}
		return r
	}
	f := File{Rows: []Row{row("direct/inline", 100, 0), row("direct/pool", 150, 50), row("direct/poller", 100, 51), row("tc/pool", 150, 0)}}
	f.Finish()
	for i, want := range []struct{ to, price string }{{"", "≤ 0"}, {"1.50 ×", "≤ 0"}, {"1.00 ×, no difference shown", "–"}, {"", "≤ 0"}} {
		if r := &f.Rows[i]; r.toInline() != want.to || r.price() != want.price || r.Ratio["direct/inline"] > 0 != (want.to != "") {
			t.Errorf("%s: %q, price %q, want %+v", r.Cell, r.toInline(), r.price(), want)
		}
	}
	if f.Rows[2].CPUNs != nil || !strings.Contains(strings.Join(f.Notes(), "\n"), "A dash in the CPU column") {
		t.Errorf("%v %q", f.Rows[2].CPUNs, f.Notes())
	}
}

// Sockets are compared by bits, or by requests.
func TestSocketRatios(t *testing.T) {
	row := func(cell string, base bool, variant string, gbps, requests float64) Row {
		r := Row{Cell: cell, Baseline: base, Load: "socket", Variant: variant}
		for i := range 3 {
			x := Round{Round: i + 1, Gbps: gbps}
			if requests > 0 {
				x.Values = map[string]float64{Requests: requests}
			}
			r.Rounds = append(r.Rounds, x)
		}
		return r
	}
	f := File{Rows: []Row{row("bridge", true, "tcp", 10, 0), row("tc/pool", false, "tcp", 15, 0), row("bridge", true, "rr", 0, 100), row("tc/pool", false, "rr", 0, 50)}}
	f.Finish()
	for i, want := range map[int]string{1: "1.50 × bridge", 3: "0.50 × bridge"} {
		if got := f.Rows[i].ratio(); got != want {
			t.Errorf("%s: %q, want %q", f.Rows[i].Variant, got, want)
		}
	}
	heads := ""
	for _, g := range f.Groups() {
		heads += strings.Join(g.Table()[0], " ") + "; "
	}
	if heads != "CELL GBIT/S MIN–MAX RATIO; CELL REQUESTS/S MIN–MAX RATIO; " {
		t.Errorf("heads %q", heads)
	}
}

// What differs by less than a percent is noise, however narrow the spreads; a row of one file has one line, and a disturbed
// one says so.
func TestDiffOfSmallThings(t *testing.T) {
	row := func(cell string, pps float64) Row {
		r := Row{Cell: cell, Load: "skb"}
		for i := range 3 {
			r.Rounds = append(r.Rounds, Round{Round: i + 1, PPS: pps, Offered: 1, Gbps: 1, Latency: &Latency{P99: 5}})
		}
		return r
	}
	a, b := File{Rows: []Row{row("x", 1000), row("gone", 1)}}, File{Rows: []Row{row("x", 1009)}}
	a.Finish()
	b.Finish()
	b.Rows[0].Noise = []string{"steal"}
	d, err := Compare(&a, &b)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := d.Text(&text); err != nil {
		t.Fatal(err)
	}
	if len(d.Changes) != 3 || d.Changes[0].Verdict != NoiseOnly || d.Changes[2].Verdict != OnlyBefore || strings.Count(text.String(), "noisy\n") != 2 {
		t.Errorf("%+v\n%s", d.Changes, &text)
	}
}

func TestCurve(t *testing.T) {
	h := hdrhistogram.New(1, 1e9, 3)
	for i := range int64(1000) {
		if err := h.RecordValue(1000 * (i + 1)); err != nil {
			t.Fatal(err)
		}
	}
	c := CurveOf(h)
	if last := c[len(c)-1]; last.Percentile != 99.9 || math.Abs(last.Micros-999) > 2 {
		t.Errorf("1000 frames bear %+v", last)
	}
	if l := LatencyOf(h); math.Abs(l.P50-500) > 2 || math.Abs(l.Max-1000) > 2 || l.Min != 1 {
		t.Errorf("%+v", l)
	}
	if CurveOf(nil) != nil || LatencyOf(hdrhistogram.New(1, 2, 1)) != nil {
		t.Error("nothing has a latency")
	}
}
