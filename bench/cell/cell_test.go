package cell_test

import (
	"testing"
	"time"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/cell"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/internal/cpus"
)

func TestProbe(t *testing.T) {
	set, _ := cpus.Allowed()
	for _, s := range cell.All() {
		for _, setup := range []string{"a", "b"} {
			for _, m := range []load.Mode{load.Frame, load.Skb} {
				tp, err := s.New(t.Context(), subject.Options{Setup: setup, Mode: m, CPUs: set[1:]})
				if err != nil {
					t.Logf("%s %s %s: %v", s.Name, setup, m, err)
					continue
				}
				tr, err := bench.NewTrial(tp, load.Config{Mode: m, CPUs: set[:1], Flows: 64, Size: 60})
				if err != nil {
					t.Error(err)
				} else {
					r, err := tr.Run(t.Context(), 300*time.Millisecond)
					t.Logf("%s %s %s: %.0f kpps offered %.0f k lost %d %v %s", s.Name, setup, m, r.PPS/1e3, r.OfferedPPS/1e3, r.Lost, err, r.Invalid)
					if err := tr.Close(); err != nil {
						t.Error(err)
					}
				}
				if err := tp.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
