package main

import (
	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/report"
)

func newBenchDiff(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "diff A.json B.json", Short: "Say what changed between two runs, and what is noise", Args: exactly("A.json", "B.json"),
		Long: `Rows of the same cell, measured in the same way, are compared. What overlaps is called noise: the least and the
greatest round of each run are its spread.`,
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := report.Read(args[0])
			if err != nil {
				return usageError{err}
			}
			b, err := report.Read(args[1])
			if err != nil {
				return usageError{err}
			}
			d, err := report.Compare(a, b)
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(d)
			}
			return d.Text(e.out)
		},
	}
}
