package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
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

func newRSSRebalance(e *env) *cobra.Command {
	var want control.Rebalancing
	cmd := &cobra.Command{
		Use: "rebalance", Short: "Move buckets from busy workers to others, by measured load", Args: noArgs,
		Long: `Measure the load of each bucket for 200 ms, and move buckets from busy workers to others if that's worth it.
Frames pass meanwhile; none is lost or overtaken. Flows that no table can spread are named.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := e.client().Rebalance(cmd.Context(), want)
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(r)
			}
			e.printRebalanced(r)
			return nil
		},
	}
	cmd.Flags().BoolVar(&want.DryRun, "dry-run", false, "only say what would be done")
	return cmd
}

func (e *env) printRebalanced(r control.Rebalanced) {
	verb := "would move"
	if r.Done {
		verb = "moved"
	}
	for _, m := range r.Moves {
		fmt.Fprintf(e.out, "%s bucket %d from worker %d to %d\n", verb, m.Bucket, m.From, m.To)
	}
	if r.Frames > 0 {
		fmt.Fprintf(e.out, "the busiest worker has %.2f times the average", r.Before.Ratio)
		if len(r.Moves) > 0 {
			fmt.Fprintf(e.out, ", %.2f times with these moves", r.After.Ratio)
		}
		fmt.Fprintf(e.out, " (%d frames in %.1f s)\n", r.Frames, r.Seconds)
	}
	e.printElephants(r.Elephants)
	fmt.Fprintln(e.out, r.Verdict)
	if r.Done {
		fmt.Fprintln(e.out, changeLine(r.Change))
	}
}

func (e *env) printElephants(all []control.Elephant) {
	for _, x := range all {
		fmt.Fprintf(e.out, "  heavy flow: %s  %s %s, %.0f%% of it, bucket %d, worker %d\n", x.Flow, x.Pair, x.Direction, 100*x.Share, x.Bucket, x.Worker)
	}
}
