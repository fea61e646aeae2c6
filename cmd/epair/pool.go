package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
)

func newPool(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pool", Short: "Show and move the workers that all pairs share", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPoolShow(e), newPoolSet(e))
	return cmd
}

func newPoolShow(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Print the workers, how they are scheduled, and what live changes did", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := e.client().Pool(cmd.Context())
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(p)
			}
			return e.printPool(p)
		},
	}
}

func newPoolSet(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "set cpus=LIST", Short: "Move the workers to other CPUs while they forward",
		Long: `Move the workers to other CPUs while they forward, worker 0 to the first of LIST and so on. Their
number stays: name as many CPUs as there are workers. A CPU that is named twice is shared.`,
		Example: `  epair pool set cpus=2-3`,
		Args:    exactly("cpus=LIST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := parsePoolSet(args[0])
			if err != nil {
				return err
			}
			c, err := e.client().SetPool(cmd.Context(), want)
			if err != nil {
				return asUsage(err)
			}
			if e.json {
				return e.printJSON(c)
			}
			fmt.Fprintf(e.out, "cpus %s  took %s\n", c.Pool.CPUs, micros(c.Change.TookMicros))
			return nil
		},
	}
}

func parsePoolSet(word string) (control.PoolChange, error) {
	const key = "cpus="
	if len(word) <= len(key) || word[:len(key)] != key {
		return control.PoolChange{}, usageError{fmt.Errorf("pool set: %q: want cpus=LIST, as cpus=0-3", word)}
	}
	return control.PoolChange{CPUs: word[len(key):]}, nil
}

func (e *env) printPool(p control.Pool) error {
	fmt.Fprintf(e.out, "cpus %s  policy %s", p.CPUs, p.Policy)
	if p.Priority > 0 {
		fmt.Fprintf(e.out, "  priority %d", p.Priority)
	}
	fmt.Fprint(e.out, "\n\n")
	t := e.table("WORKER", "CPU", "TID", "RAN", "WAITED FOR CPU", "PAIR")
	for _, w := range p.Workers {
		t.row(w.Name, w.CPU, w.TID, micros(float64(w.CPUNanos)/1e3), micros(float64(w.WaitNanos)/1e3), w.Pair)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range p.Stuck {
		fmt.Fprintf(e.out, "stuck since %s, kicked %d times: %s\n", x.Since, x.Kicks, x.What)
	}
	f := p.Fence
	if b := p.Balance; b.Auto {
		fmt.Fprintf(e.out, "\nrebalance auto: measured %d times, moved buckets %d times; last: %s\n", b.Measured, b.Done, b.Verdict)
	}
	fmt.Fprintf(e.out, "\nlive changes %d, given up %d, buckets moved %d (%d with frames in flight)\n", f.Changes, f.Failed, f.Moved, f.Held)
	if f.Changes > 0 {
		fmt.Fprintf(e.out, "time to move p50 %s p99 %s max %s; longest wait of a frame p50 %s max %s\n", micros(f.MoveP50Micros),
			micros(f.MoveP99Micros), micros(f.MoveMaxMicros), micros(f.BlockedP50Micros), micros(f.BlockedMaxMicros))
	}
	return nil
}
