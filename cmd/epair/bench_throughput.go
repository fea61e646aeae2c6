package main

import (
	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchThroughput(e *env) *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use: "throughput", Short: "Measure how many frames a second cells deliver",
		Long: `As many frames as the load can make go in; what comes out is counted. Set-up a is load, pair, sink; in set-up b
a namespace between two pairs routes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.bench(cmd.Context(), &b, "throughput", compare.Rates(0))
		},
	}
	b.add(cmd, scenarioRounds, "none")
	return cmd
}
