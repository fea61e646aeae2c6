package main

import (
	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchLatency(e *env) *cobra.Command {
	var b benchFlags
	var rates []string
	cmd := &cobra.Command{
		Use: "latency", Short: "Measure how long frames take at a rate",
		Long: `Frames go in at a fixed rate, whatever comes out, and latency counts from the time each was due: a stall is seen by
all frames it holds back. Without --rate, each cell's greatest rate without loss is looked for first, and 10, 50
and 90 % of it are used.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(rates) == 0 {
				return e.bench(cmd.Context(), &b, "latency", compare.Latency())
			}
			list, err := parsePaces(rates)
			if err != nil {
				return usageError{err}
			}
			return e.bench(cmd.Context(), &b, "latency", compare.Rates(list...))
		},
	}
	b.add(cmd, scenarioRounds, "none")
	cmd.Flags().StringSliceVar(&rates, "rate", nil, "frames a second (50k, 1.5M); several are measured one after the other")
	return cmd
}
