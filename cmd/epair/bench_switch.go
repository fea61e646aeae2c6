package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/compare"
)

func newBenchSwitch(e *env) *cobra.Command {
	var b benchFlags
	var s compare.Switching
	var rate string
	cmd := &cobra.Command{
		Use: "switch", Short: "Measure what live changes cost the frames that cross meanwhile",
		Long: `A pair's mode, and then its indirection table, change again and again at a fixed rate. Blocked time is lost frames ÷
offered rate. A table needs two workers: with two CPUs say --share.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := parsePaces([]string{rate})
			if err == nil && (s.Every <= 0 || len(s.Modes)+len(s.Table) == 0) {
				err = errors.New("bench: nothing to change (see --every, --modes, --table)")
			}
			if err != nil {
				return usageError{err}
			}
			s.Rate = r[0]
			return e.bench(cmd.Context(), &b, "switch", compare.Switch(s))
		},
	}
	b.add(cmd, scenarioRounds, "none")
	f := cmd.Flags()
	f.StringVar(&rate, "rate", "50k", "frames a second")
	f.DurationVar(&s.Every, "every", 200*time.Millisecond, "from one change to the next")
	f.StringSliceVar(&s.Modes, "modes", []string{"inline", "pool"}, "modes to change to, one after the other")
	f.StringArrayVar(&s.Table, "table", nil, "a table to change to (equal, weight 1 3, or a list of workers); say it once for each")
	return cmd
}
