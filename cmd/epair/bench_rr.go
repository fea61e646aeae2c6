package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchRR(e *env) *cobra.Command {
	var b benchFlags
	var sessions, sizes []int
	cmd := &cobra.Command{
		Use: "rr", Short: "Measure requests and answers over TCP",
		Long: `Each session asks, waits for the answer of the same size, and asks again. Latency is that of an exchange. Those who
ask run on the load's CPUs, those who answer on the others.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(within("sessions", 10000, sessions), within("sizes", 1<<30, sizes)); err != nil {
				return err
			}
			return e.bench(cmd.Context(), &b, "rr", compare.RR(sessions, sizes))
		},
	}
	b.addSockets(cmd, scenarioRounds, "none")
	cmd.Flags().IntSliceVar(&sessions, "sessions", []int{1, 16, 32, 64}, "connections at once")
	cmd.Flags().IntSliceVar(&sizes, "sizes", []int{1, 512, 5 << 10, 1 << 20}, "bytes of a request and of an answer")
	return cmd
}
