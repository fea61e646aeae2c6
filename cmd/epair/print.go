package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/epair-net/epair/control"
)

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
