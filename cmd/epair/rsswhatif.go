package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/rss"
)

// predicted is what a table would make of flows.
type predicted struct {
	Flows   int              `json:"flows"`
	Load    float64          `json:"load"`   // sum of the flows' weights
	Uneven  float64          `json:"uneven"` // the busiest worker's load over the average; 1 is even
	Workers []predictedShare `json:"workers"`
}

// predictedShare is one worker's part.
type predictedShare struct {
	Worker int     `json:"worker"`
	Flows  int     `json:"flows"`
	Load   float64 `json:"load"`
	Share  float64 `json:"share"` // of 1
}

func newRSSWhatIf(e *env) *cobra.Command {
	var f rssFlags
	var measured bool
	cmd := &cobra.Command{
		Use: "what-if [FILE]", Short: "Say how a hash and table would spread flows, without changing anything",
		Long: `Say how a hash and table would spread the flows of FILE, or of standard input: one a line, as PROTO
SRC[:PORT] DST[:PORT] [WEIGHT]. Empty lines and those that begin with # are skipped; the default weight is 1.

With --measured, say how --table would spread what passes the running daemon now, by its own hash. A unit of load is what a
byte of a long frame costs.`,
		Example: `  printf 'udp 10.0.0.1:%d 10.0.0.2:53\n' $(seq 1000 1999) | epair rss what-if --workers 4 --table 'weight 3 1'
  epair rss what-if --measured --table 'weight 3 1'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.whatIf(cmd, measured, args)
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(p)
			}
			return e.printPredicted(p)
		},
	}
	f.register(e, cmd)
	cmd.Flags().BoolVar(&measured, "measured", false, "the load that the running daemon measures, instead of a list of flows")
	return cmd
}

func (f *rssFlags) whatIf(cmd *cobra.Command, measured bool, args []string) (p predicted, err error) {
	if measured {
		if len(args) > 0 || countSet(cmd, "file", "live", "func", "key", "symmetric", "inner", "fields", "workers") > 0 {
			return p, usageError{errors.New("rss what-if: --measured goes with --table only: flows and hash are the daemon's")}
		}
		now, err := f.env.client().RSS(cmd.Context())
		if err != nil {
			return p, err
		}
		t, err := rss.ParseTable(f.table, len(now.Table), now.Workers)
		if err != nil {
			return p, usageError{err}
		}
		return f.env.measured(cmd.Context(), t)
	}
	h, t, err := f.resolve(cmd)
	if err != nil {
		return p, rssUsage(err)
	}
	in := cmd.InOrStdin()
	if len(args) == 1 {
		file, err := os.Open(args[0])
		if err != nil {
			return p, usageError{err}
		}
		defer file.Close()
		in = file
	}
	if p, err = predict(in, h, t); err != nil {
		return p, usageError{err}
	}
	return p, nil
}

// predict adds up the flows of r by worker.
func predict(r io.Reader, h *rss.Hasher, t *rss.Table) (p predicted, err error) {
	for w := range t.Workers() {
		p.Workers = append(p.Workers, predictedShare{Worker: w})
	}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		tuple, weight, err := weighted(text)
		if err != nil {
			return p, fmt.Errorf("line %d: %w", n, err)
		}
		hash, err := h.HashTuple(tuple)
		if err != nil {
			return p, fmt.Errorf("line %d: %w", n, err)
		}
		s := &p.Workers[t.Worker(t.Bucket(hash))]
		s.Flows++
		s.Load += weight
		p.Flows++
		p.Load += weight
	}
	if p.Flows == 0 {
		return p, cmp.Or(lines.Err(), errors.New("rss what-if: no flows (write one a line, as udp 10.0.0.1:5000 10.0.0.2:53)"))
	}
	p.finish()
	return p, lines.Err()
}

// finish works out the shares.
func (p *predicted) finish() {
	for i := range p.Workers {
		s := &p.Workers[i]
		s.Share = s.Load / p.Load
		p.Uneven = max(p.Uneven, s.Share*float64(len(p.Workers)))
	}
}

// weighted reads a tuple and what may follow it.
func weighted(text string) (rss.Tuple, float64, error) {
	words, weight := strings.Fields(text), 1.0
	if len(words) == 4 {
		var err error
		if weight, err = strconv.ParseFloat(words[3], 64); err != nil || !(weight > 0 && weight < 1e18) {
			return rss.Tuple{}, 0, fmt.Errorf("weight %.20q: want a number above 0", words[3])
		}
		text = strings.Join(words[:3], " ")
	}
	t, err := rss.ParseTuple(text)
	return t, weight, err
}

func (e *env) printPredicted(p predicted) error {
	t := e.table("WORKER", "FLOWS", "LOAD", "SHARE")
	for _, s := range p.Workers {
		t.row(s.Worker, s.Flows, strconv.FormatFloat(s.Load, 'f', -1, 64), fmt.Sprintf("%.1f%%", 100*s.Share))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "\nthe busiest worker has %.2f times the average\n", p.Uneven)
	return nil
}

// measured predicts from the load that the daemon measures.
func (e *env) measured(ctx context.Context, t *rss.Table) (p predicted, err error) {
	l, err := e.client().Load(ctx)
	if err != nil {
		return p, err
	}
	if l.Frames == 0 {
		return p, errors.New("rss what-if: no frame of a pair in mode pool came while it was measured (send some)")
	}
	if len(l.Buckets) != t.Size() {
		return p, fmt.Errorf("rss what-if: the daemon has %d buckets, the table %d", len(l.Buckets), t.Size())
	}
	for w := range t.Workers() {
		p.Workers = append(p.Workers, predictedShare{Worker: w})
	}
	for b, load := range l.Buckets {
		p.Workers[t.Worker(b)].Load += float64(load)
		p.Load += float64(load)
	}
	p.finish()
	return p, nil
}
