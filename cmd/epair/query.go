package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
)

// The commands here ask a running daemon and change nothing.

func newList(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the pairs of the running daemon", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pairs, err := e.client().Pairs(cmd.Context())
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(control.Pairs{Pairs: pairs})
			}
			t := e.table("NAME", "STATE", "DATAPATH", "MODE", "A", "B")
			for _, p := range pairs {
				t.row(p.Name, p.State, p.Datapath, p.Mode, endName(p.A), endName(p.B))
			}
			return t.Flush()
		},
	}
}

func newShow(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show one pair: what was chosen and why, its ends, its ledger", Args: exactly("NAME"),
		ValidArgsFunction: e.completePairs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := e.client().Pair(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(p)
			}
			e.printPair(p)
			return nil
		},
	}
}

func newStat(e *env) *cobra.Command {
	var watch bool
	var interval time.Duration
	var count int
	cmd := &cobra.Command{
		Use: "stat [NAME]", Short: "Print the counters of every pair and worker, or rates again and again",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly("at most one NAME")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: e.completePairs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			switch {
			case interval <= 0 || count < 0:
				return usageError{errors.New("stat: --interval must be above 0, and --count not below")}
			case watch:
				return e.watch(cmd.Context(), name, interval, count)
			case countSet(cmd, "interval", "count") > 0:
				return usageError{errors.New("stat: --interval and --count go with --watch")}
			}
			s, err := e.client().Stat(cmd.Context())
			if err == nil {
				err = only(&s, name)
			}
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(s)
			}
			return e.printStat(s)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print rates until interrupted; with --json one object a line")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many (default: never)")
	return cmd
}

func newAudit(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "audit", Short: "Check that every ledger balances (exit status 1 if one doesn't)", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := e.client().Audit(cmd.Context())
			if err != nil {
				return err
			}
			if e.json {
				err = e.printJSON(a)
			} else {
				e.printAudit(a)
			}
			if err == nil && len(a.Findings) > 0 {
				err = errQuiet
			}
			return err
		},
	}
}

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := control.ThisVersion()
			if e.json {
				return e.printJSON(v)
			}
			fmt.Fprintf(e.out, "epair %s (%s)\n", v.Version, v.Go)
			return nil
		},
	}
}
