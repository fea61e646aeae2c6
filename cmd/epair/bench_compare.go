package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/baseline"
	"github.com/epair-net/epair/bench/cell"
	"github.com/epair-net/epair/bench/compare"
)

func newBenchCompare(e *env) *cobra.Command {
	var b benchFlags
	var rates []string
	cmd := &cobra.Command{
		Use: "compare", Short: "Measure cells and baselines in turns and compare them",
		Long: `All cells and baselines that this machine can do, in turns (A B C, A B C, …), so that what
changes on the machine meanwhile meets them all alike. Rows are compared only when their frames went in the same way:
as bare XDP frames (frame) or as a socket's do (skb).

Cells:      ` + strings.Join(subjectNames(cell.All()), ", ") + `
Baselines:  ` + strings.Join(subjectNames(baseline.All()), ", "),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := parseRates(rates)
			if err != nil {
				return usageError{err}
			}
			return e.bench(cmd.Context(), &b, "compare", compare.Rates(list...))
		},
	}
	b.add(cmd, compareRounds, "all")
	cmd.Flags().StringSliceVar(&rates, "rates", []string{"max"}, "rates to measure at: max, or frames a second (50k, 1.5M); paced ones show latency")
	return cmd
}

// parseRates reads rates; max is 0.
func parseRates(list []string) (rates []float64, err error) {
	for _, s := range list {
		r, err := parseRate(s)
		if err != nil {
			return nil, err
		}
		rates = append(rates, r)
	}
	return rates, nil
}

// parsePaces reads rates that aren't max.
func parsePaces(list []string) ([]float64, error) {
	rates, err := parseRates(list)
	if err == nil && slices.Contains(rates, 0) {
		err = errors.New("bench: rate max: there is no pace to keep (name frames a second)")
	}
	return rates, err
}

func parseRate(s string) (float64, error) {
	if s == "max" {
		return 0, nil
	}
	number, unit := s, 1.0
	if n, ok := strings.CutSuffix(s, "k"); ok {
		number, unit = n, 1e3
	} else if n, ok := strings.CutSuffix(s, "M"); ok {
		number, unit = n, 1e6
	}
	r, err := strconv.ParseFloat(number, 64)
	if err != nil || !(r > 0) || r*unit > 1e9 {
		return 0, fmt.Errorf("bench: rate %q (write frames a second, as 50000, 50k or 1.5M, or max)", s)
	}
	return r * unit, nil
}
