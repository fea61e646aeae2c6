package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"text/tabwriter"
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

func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printLine prints JSON on one line, for those who read a stream.
func (e *env) printLine(v any) error { return json.NewEncoder(e.out).Encode(v) }

func endName(x control.End) string { return fmt.Sprintf("%s:%s@%s", x.Kind, x.Name, x.Netns) }

func (e *env) printPair(p control.Pair) {
	fmt.Fprintf(e.out, "%s  %s  %s/%s\n", p.Name, p.State, p.Datapath, p.Mode)
	for _, w := range p.Why {
		fmt.Fprintf(e.out, "  %s\n", w)
	}
	if p.Steer != "" {
		fmt.Fprintf(e.out, "  steer: %s\n", p.Steer)
	}
	if p.Trouble != "" {
		fmt.Fprintf(e.out, "  trouble: %s\n", p.Trouble)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(e.out, "  note: %s\n", n)
	}
	for _, t := range p.Threads {
		fmt.Fprintf(e.out, "  thread %s  pid %d  cpu %d\n", t.Name, t.PID, t.CPU)
	}
	for _, x := range []struct {
		label string
		control.End
	}{{"a", p.A}, {"b", p.B}} {
		fmt.Fprintf(e.out, "  %s  %s  %s  mtu %d  mac %s  port %s  %s\n", x.label, endName(x.End), x.State, x.MTU, x.MAC, x.Port,
			strings.Join(x.Addresses, " "))
	}
	for _, d := range []struct {
		label string
		control.Direction
	}{{"a→b", p.AB}, {"b→a", p.BA}} {
		fmt.Fprintf(e.out, "  %s  rx %d  tx %d  queued %d  drops %s%s\n", d.label, d.Rx, d.Tx, d.Queued, dropList(d.Drops), unsteered(d.Unsteered))
		for _, s := range d.Workers {
			if s.Batches > 0 {
				fmt.Fprintf(e.out, "       worker %d: rx %d  tx %d  handed over %d  taken over %d  batches %d\n",
					s.Worker, s.Rx, s.Tx, s.Handed, s.Taken, s.Batches)
			}
		}
	}
	e.printElephants(p.Elephants)
}

func unsteered(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("  unsteered %d", n)
}

// dropList returns the reasons in a fixed order.
func dropList(drops map[string]uint64) string {
	if len(drops) == 0 {
		return "0"
	}
	var names []string
	for n := range drops {
		names = append(names, n)
	}
	sort.Strings(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%s=%d", n, drops[n])
	}
	return strings.Join(names, " ")
}

func (e *env) printStat(s control.Stat) error {
	t := e.table("PAIR", "DIR", "STATE", "RX", "TX", "QUEUED", "DROPS")
	for _, p := range s.Pairs {
		for _, d := range []struct {
			label string
			control.Direction
		}{{"a→b", p.AB}, {"b→a", p.BA}} {
			t.row(p.Name, d.label, p.State, d.Rx, d.Tx, d.Queued, dropList(d.Drops))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(e.out)
	t = e.table("WORKER", "CPU", "TID", "TURNS", "SLEEPS", "WAKES", "YIELDS", "PAIR")
	for _, w := range s.Workers {
		t.row(w.Name, w.CPU, w.TID, w.Turns, w.Sleeps, w.Wakes, w.Yields, w.Pair)
	}
	return t.Flush()
}

func (e *env) printAudit(a control.Audit) {
	for _, f := range a.Findings {
		fmt.Fprintf(e.out, "%s %s: %s\n", f.Pair, f.Direction, f.What)
	}
	if len(a.Findings) == 0 {
		fmt.Fprintf(e.out, "%s, %s: every ledger balances\n", count(a.Pairs, "pair"), count(a.Frames, "frame"))
	}
}

// table is a tabwriter that takes rows.
type table struct{ *tabwriter.Writer }

func (e *env) table(head ...any) table {
	t := table{tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprint(t, c)
	}
	fmt.Fprintln(t)
}
