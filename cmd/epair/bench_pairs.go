package main

import (
	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchPairs(e *env) *cobra.Command {
	var b benchFlags
	var n []int
	cmd := &cobra.Command{
		Use: "pairs", Short: "Measure what many pairs cost: time to make and remove, memory, threads",
		Long: "While all pairs are there, one is loaded: its rate says what the others, which are idle, cost it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within("n", 10000, n); err != nil {
				return err
			}
			return e.bench(cmd.Context(), &b, "pairs", compare.Pairs(n...))
		},
	}
	b.add(cmd, 1, "none")
	cmd.Flags().IntSliceVar(&n, "n", []int{1, 10, 100, 500}, "how many; several numbers are measured one after the other")
	return cmd
}
