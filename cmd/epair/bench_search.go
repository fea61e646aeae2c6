package main

import (
	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/compare"
)

// newBenchSearch makes the commands that look for a rate.
func newBenchSearch(e *env, name, short string, loss float64) *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use: name, Short: short,
		Long: `The range of rates is halved until it is 2 % wide; a rate that loses too much is tried twice. Each trial lasts as
long as --time says.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.bench(cmd.Context(), &b, name, compare.Search(name, loss))
		},
	}
	b.add(cmd, scenarioRounds, "none")
	return cmd
}

func newBenchNDR(e *env) *cobra.Command {
	return newBenchSearch(e, "ndr", "Find the greatest rate without loss", bench.NDR)
}

func newBenchPDR(e *env) *cobra.Command {
	return newBenchSearch(e, "pdr", "Find the greatest rate with at most 0.5 % loss", bench.PDR)
}
