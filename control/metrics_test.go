package control

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, s *served) map[string]*dto.MetricFamily {
	t.Helper()
	status, text := s.do(t, http.MethodGet, "/metrics", nil)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	m, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMetrics(t *testing.T) {
	s := serveDaemon(t)
	if _, err := s.Client.Add(t.Context(), pairsOf(t, 2)...); err != nil {
		t.Fatal(err)
	}
	_, text := s.do(t, http.MethodGet, "/metrics", nil)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	m := scrape(t, s)
	for name, want := range map[string]int{
		"epair_pairs": 1, "epair_pair_up": 2, "epair_rx_frames_total": 4, "epair_imbalance_frames": 4, "epair_worker_turns_total": 2,
		"epair_fence_changes_total": 1, "epair_build_info": 1, "process_resident_memory_bytes": 1, "go_goroutines": 1,
	} {
		if m[name] == nil || len(m[name].Metric) != want {
			t.Errorf("%s: %v, want %d samples", name, m[name], want)
		}
	}
	if v := m["epair_pairs"].Metric[0].GetGauge().GetValue(); v != 2 {
		t.Errorf("epair_pairs is %v", v)
	}
}

// The TCP address answers metrics only.
func TestServeMetrics(t *testing.T) {
	s := serveDaemon(t)
	ctx, stop := context.WithCancel(t.Context())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Daemon.ServeMetrics(ctx, ln) }()
	for path, want := range map[string]int{"/metrics": 200, "/v1/pairs": 404, "/v1/gc": 404, "/": 404} {
		res, err := http.Get("http://" + ln.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != want || (want == 200) != strings.Contains(string(text), "epair_pairs 0") {
			t.Errorf("%s: %s, %v", path, res.Status, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Every metric and label that the dashboard names exists.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../deploy/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dash any
	if err := json.Unmarshal(data, &dash); err != nil {
		t.Fatal(err)
	}
	known := map[string]string{} // metric → its labels
	for name, d := range newMetricSet().all() {
		known[name] = d.String()
	}
	exprs := expressions(dash)
	if len(exprs) < 10 {
		t.Fatalf("only %d expressions", len(exprs))
	}
	used := map[string]bool{}
	for _, expr := range exprs {
		names := regexp.MustCompile(`\bepair_\w+`).FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s: no metric of ours", expr)
		}
		for _, n := range names {
			used[n] = true
			if known[n] == "" {
				t.Errorf("%s: there is no metric %s", expr, n)
			}
		}
		for _, by := range regexp.MustCompile(`(?:by|without) \(([^)]*)\)|\{(\w+)=`).FindAllStringSubmatch(expr, -1) {
			for _, label := range strings.FieldsFunc(by[1]+by[2], func(r rune) bool { return r == ',' || r == ' ' }) {
				if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(known[n], label) }) {
					t.Errorf("%s: no label %s", expr, label)
				}
			}
		}
	}
	for _, n := range []string{"epair_drops_total", "epair_imbalance_frames", "epair_worker_cpu_seconds_total"} {
		if !used[n] {
			t.Errorf("the dashboard doesn't show %s", n)
		}
	}
}

// expressions returns all queries in a JSON tree.
func expressions(v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			if text, ok := x.(string); ok && key == "expr" {
				all = append(all, text)
			}
			all = append(all, expressions(x)...)
		}
	case []any:
		for _, x := range v {
			all = append(all, expressions(x)...)
		}
	}
	return all
}
