package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchUDP(e *env) *cobra.Command {
	var b benchFlags
	var receivers []string
	cmd := &cobra.Command{
		Use: "udp", Short: "Measure one flow of small UDP datagrams",
		Long: `One connected socket on the first of the load's CPUs sends 22-byte datagrams, 32 a call, as fast as it can. Cells
that spread by flow take it to the pool's CPUs, which the sender isn't on: that is what they are for. How much
comes of it depends on who reads: nobody (none: datagrams are counted where they reach the far interface, and end
at a full socket), a socket on the sender's CPU (load), or one on the pool's (other).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := compare.CheckReceivers(receivers)
			if err != nil {
				return usageError{fmt.Errorf("bench: %w", err)}
			}
			return e.bench(cmd.Context(), &b, "udp", compare.UDP(list...))
		},
	}
	b.addSockets(cmd, compareRounds, "veth", "bridge")
	cmd.Flags().StringSliceVar(&receivers, "receiver", []string{"none", "load", "other"}, "where the receiving socket runs: none, load, other; several are measured one after the other")
	return cmd
}
