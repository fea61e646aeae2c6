package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/rss"
)

// notUsage marks an error that isn't the user's mistake although a flag led to it.
type notUsage struct{ error }

func (e notUsage) Unwrap() error { return e.error }

// rssUsage marks the errors of resolving flags and tuples as the user's.
func rssUsage(err error) error {
	var other notUsage
	if errors.As(err, &other) {
		return err
	}
	return usageError{err}
}

func newRSSSet(e *env) *cobra.Command {
	var fn, key, table string
	var symmetric, inner bool
	var fields []string
	cmd := &cobra.Command{
		Use: "set", Short: "Change hash and table of the running daemon while frames pass", Args: noArgs,
		Long:    `Change hash and table of the running daemon while frames pass; none is lost or overtaken. What isn't named stays.`,
		Example: "  epair rss set --table 'weight 2 1'\n  epair rss set --symmetric --fields udp4=sdfn",
	}
	fl := cmd.Flags()
	fl.StringVar(&fn, "func", "", "hash function: toeplitz or xxhash")
	fl.StringVar(&key, "key", "", "RSS key: default, symmetric, or 40 to 52 bytes in hex")
	fl.BoolVar(&symmetric, "symmetric", false, "the same hash for both directions of a flow")
	fl.BoolVar(&inner, "inner", false, "hash what is inside tunnels")
	fl.StringSliceVar(&fields, "fields", nil, "fields of a flow type, as udp4=sdfn (repeatable)")
	fl.StringVar(&table, "table", "", "indirection table: equal [N], weight W0 W1 …, or a list of workers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := parseFields(fields)
		if err != nil {
			return usageError{err}
		}
		var want control.RSSChange
		for _, set := range []struct {
			flag string
			do   func()
		}{
			{"func", func() { want.Func = &fn }},
			{"key", func() { want.Key = &key }},
			{"symmetric", func() { want.Symmetric = &symmetric }},
			{"inner", func() { want.Inner = &inner }},
			{"fields", func() { want.Fields = &m }},
			{"table", func() { want.Table = &table }},
		} {
			if fl.Changed(set.flag) {
				set.do()
			}
		}
		if want == (control.RSSChange{}) {
			return usageError{fmt.Errorf("rss set: nothing to change (see '%s --help')", cmd.CommandPath())}
		}
		c, err := e.client().SetRSS(cmd.Context(), want)
		if err != nil {
			return asUsage(err)
		}
		if e.json {
			return e.printJSON(c)
		}
		fmt.Fprintln(e.out, changeLine(c.Change))
		return nil
	}
	return cmd
}

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
	cmd := &cobra.Command{
		Use: "what-if [FILE]", Short: "Say how a hash and table would spread flows, without changing anything",
		Long: `Say how a hash and table would spread the flows of FILE, or of standard input: one a line, as PROTO
SRC[:PORT] DST[:PORT] [WEIGHT]. Empty lines and those that begin with # are skipped; the default weight is 1.`,
		Example: "  printf 'udp 10.0.0.1:%d 10.0.0.2:53\\n' $(seq 1000 1999) | epair rss what-if --workers 4 --table 'weight 3 1'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, t, err := f.resolve(cmd)
			if err != nil {
				return rssUsage(err)
			}
			in := cmd.InOrStdin()
			if len(args) == 1 {
				file, err := os.Open(args[0])
				if err != nil {
					return asUsage(err)
				}
				defer file.Close()
				in = file
			}
			p, err := predict(in, h, t)
			if err != nil {
				return usageError{err}
			}
			if e.json {
				return e.printJSON(p)
			}
			return e.printPredicted(p)
		},
	}
	f.register(e, cmd)
	return cmd
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
	for i := range p.Workers {
		s := &p.Workers[i]
		s.Share = s.Load / p.Load
		p.Uneven = max(p.Uneven, s.Share*float64(len(p.Workers)))
	}
	return p, lines.Err()
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
	fmt.Fprintf(e.out, "\n%d flows; the busiest worker has %.2f times the average\n", p.Flows, p.Uneven)
	return nil
}

// crafted is a flow that lands on a worker.
type crafted struct {
	Tuple  string `json:"tuple"`
	Hash   string `json:"hash"`
	Bucket int    `json:"bucket"`
	Worker int    `json:"worker"`
}

func newRSSCraft(e *env) *cobra.Command {
	var f rssFlags
	var worker, count int
	cmd := &cobra.Command{
		Use: "craft --worker K [PROTO SRC DST[:PORT]]", Short: "Find flows that land on a worker",
		Long: `Find flows that land on a worker, by trying source ports from that of the flow given, or from 1024, up. Without a
flow, udp 10.0.0.1 10.0.0.2:9 is taken.`,
		Example: "  epair rss craft --worker 1 --count 4 --live tcp 10.0.0.1 10.0.0.2:5201",
		RunE: func(cmd *cobra.Command, args []string) error {
			h, t, err := f.resolve(cmd)
			if err != nil {
				return rssUsage(err)
			}
			if !cmd.Flags().Changed("worker") || worker < 0 || worker >= t.Workers() || count < 1 {
				return usageError{fmt.Errorf("rss craft: name --worker, from 0 to %d, and --count, from 1", t.Workers()-1)}
			}
			tuple, err := rss.ParseTuple(cmp.Or(strings.Join(args, " "), "udp 10.0.0.1:0 10.0.0.2:9"))
			if err != nil {
				return usageError{err}
			}
			found, err := craft(h, t, tuple, worker, count)
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(found)
			}
			for _, c := range found {
				fmt.Fprintf(e.out, "%s  hash %s  bucket %d  worker %d\n", c.Tuple, c.Hash, c.Bucket, c.Worker)
			}
			return nil
		},
	}
	f.register(e, cmd)
	cmd.Flags().IntVar(&worker, "worker", 0, "the worker to hit")
	cmd.Flags().IntVar(&count, "count", 1, "how many flows")
	return cmd
}

// craft tries source ports.
func craft(h *rss.Hasher, t *rss.Table, tuple rss.Tuple, worker, count int) (found []crafted, err error) {
	const firstPort, lastPort = 1024, 65535 // behind those of services
	for port := cmp.Or(int(tuple.Src.Port()), firstPort); port <= lastPort && len(found) < count; port++ {
		tuple.Src = netip.AddrPortFrom(tuple.Src.Addr(), uint16(port))
		hash, err := h.HashTuple(tuple)
		if err != nil {
			return nil, usageError{err}
		}
		if b := t.Bucket(hash); t.Worker(b) == worker {
			found = append(found, crafted{tuple.String(), fmt.Sprintf("%08x", hash), b, worker})
		}
	}
	if len(found) < count {
		return nil, fmt.Errorf("rss craft: %d of %d flows found for worker %d (choose another flow: is its source port hashed, has the worker buckets?)",
			len(found), count, worker)
	}
	return found, nil
}
