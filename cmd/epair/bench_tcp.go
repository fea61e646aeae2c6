package main

import (
	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchTCP(e *env) *cobra.Command {
	var b benchFlags
	var streams []int
	cmd := &cobra.Command{
		Use: "tcp", Short: "Measure bulk TCP streams",
		Long: "Streams send as fast as TCP lets them; what the receiver read counts. Senders run on the load's CPUs, receivers on the others.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within("streams", 10000, streams); err != nil {
				return err
			}
			return e.bench(cmd.Context(), &b, "tcp", compare.TCP(streams...))
		},
	}
	b.addSockets(cmd, scenarioRounds, "none")
	cmd.Flags().IntSliceVar(&streams, "streams", []int{1}, "streams at once; several numbers are measured one after the other")
	return cmd
}
