package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
)

// completionTime is how long a shell waits for names.
const completionTime = 500 * time.Millisecond

// client returns a client of the daemon.
func (e *env) client() *control.Client { return control.NewClient(e.socket) }

// completePairs completes the names of pairs, each once, for the first n arguments; -1: for all.
func (e *env) completePairs(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		pairs, err := e.client().Pairs(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, p := range pairs {
			if !slices.Contains(args, p.Name) {
				names = append(names, p.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSet completes a pair, then what can be set.
func (e *env) completeSet(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return e.completePairs(1)(cmd, args, word)
	}
	return []cobra.Completion{
		"mode=inline", "mode=pool", "mode=poller", "datapath=direct", "datapath=tc", "datapath=xdp", "datapath=user",
	}, cobra.ShellCompDirectiveNoFileComp
}
