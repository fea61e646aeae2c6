package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench/baseline"
	"github.com/epair-net/epair/bench/cell"
	"github.com/epair-net/epair/bench/compare"
	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/internal/cpus"
)

func newBench(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure cells and what they are compared with", Args: noArgs,
		Long: `Everything is made for the run, in namespaces without a name, and is gone at its end:
load, sink, cells, baselines. Figures are counted at the far end.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchCompare(e), newBenchThroughput(e), newBenchLatency(e), newBenchRR(e), newBenchTCP(e), newBenchUDP(e), newBenchPairs(e),
		newBenchSwitch(e), newBenchNDR(e), newBenchPDR(e), newBenchDiff(e))
	return cmd
}

// benchFlags are those that all scenarios share.
type benchFlags struct {
	cells, baselines []string
	setup, load      string
	sink             string
	rounds           int
	time             time.Duration
	size             string
	flows, ip6       int
	loads            int
	seed             uint64
	cpus             string
	share            bool
	json, html       string
}

// How often each is measured unless the user says: scenarioRounds is enough to show a difference.
const (
	scenarioRounds = 3
	compareRounds  = 5
)

// add defines the flags of scenarios that send frames; rounds and baselines are defaults.
func (b *benchFlags) add(cmd *cobra.Command, rounds int, baselines ...string) {
	b.addSockets(cmd, rounds, baselines...)
	f := cmd.Flags()
	f.StringVar(&b.load, "load", b.load, "how frames go in: frame, skb, both, or auto (what suits each cell)")
	f.StringVar(&b.sink, "sink", b.sink, "where frames are counted: tcx, as a socket would get them, or xdp, before that (in frame load)")
	f.StringVar(&b.size, "size", b.size, "bytes of a frame with its check sequence (64 to 9018), or imix")
	f.IntVar(&b.flows, "flows", 256, "flows of the load")
	f.IntVar(&b.ip6, "ip6", 0, "percent of the flows that are IPv6 (frames of 84 bytes at least)")
}

// addSockets defines those of scenarios in which sockets send, and so of all.
func (b *benchFlags) addSockets(cmd *cobra.Command, rounds int, baselines ...string) {
	b.load, b.sink, b.size = "auto", "tcx", "64"
	f := cmd.Flags()
	f.StringSliceVar(&b.cells, "cells", []string{"all"}, "cells to measure, or all, or none (names: epair bench compare --help)")
	f.StringSliceVar(&b.baselines, "baselines", baselines, "baselines to measure, or all, or none")
	f.StringVar(&b.setup, "setup", "a", "a: load, pair, sink; b: load, pair, router, pair, sink")
	f.IntVar(&b.rounds, "rounds", rounds, "how often each is measured")
	f.DurationVar(&b.time, "time", 2*time.Second, "how long each trial is")
	f.Uint64Var(&b.seed, "seed", 1, "of the flows' addresses and ports")
	f.StringVar(&b.cpus, "cpus", "", "CPUs to use (default: all that this process may)")
	f.IntVar(&b.loads, "load-cpus", 1, "on how many of them frames are generated; the others forward")
	f.BoolVar(&b.share, "share", false, "let forwarders use the generators' CPUs too")
	b.addOutput(cmd)
}

// addOutput takes --json with or without a file: the file may be the next word, which is then an argument.
func (b *benchFlags) addOutput(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.json, "json", "", "print JSON (epair.bench/1), or write it to a `FILE`")
	f.Lookup("json").NoOptDefVal = "-"
	f.StringVar(&b.html, "html", "", "write a page with plots to a `FILE`")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && b.json == "-" {
			b.json = args[0]
			return nil
		}
		return noArgs(cmd, args)
	}
}

// config is what the flags say.
func (b *benchFlags) config(e *env, m compare.Measure, scenario string) (c compare.Config, err error) {
	c = compare.Config{
		Scenario: scenario, Setup: b.setup, Rounds: b.rounds, Time: b.time, Flows: b.flows, IP6: b.ip6, Seed: b.seed, Measure: m,
		Command: os.Args, Version: control.ThisVersion().Version, Progress: e.benchProgress,
	}
	if b.size != "imix" {
		if _, err := fmt.Sscanf(b.size+"\n", "%d\n", &c.Size); err != nil || c.Size <= 0 {
			return c, usageError{fmt.Errorf("bench: size %q (write bytes, or imix)", b.size)}
		}
	}
	switch b.load {
	case "auto":
	case "frame":
		c.Modes = []load.Mode{load.Frame}
	case "skb":
		c.Modes = []load.Mode{load.Skb}
	case "both":
		c.Modes = []load.Mode{load.Frame, load.Skb}
	default:
		return c, usageError{fmt.Errorf("bench: load %q (use frame, skb, both or auto)", b.load)}
	}
	switch b.sink {
	case "tcx":
		c.Sink = load.Skb
	case "xdp":
		c.Sink = load.Frame
	default:
		return c, usageError{fmt.Errorf("bench: sink %q (use tcx or xdp)", b.sink)}
	}
	if c.Subjects, err = b.subjects(); err != nil {
		return c, usageError{err}
	}
	used, err := cpus.Parse(b.cpus)
	if err == nil && len(used) == 0 {
		used, err = cpus.Allowed()
	}
	if err == nil {
		c.Place, err = compare.PlaceOn(used, b.loads, b.share)
	}
	if err != nil {
		return c, usageError{fmt.Errorf("bench: %w", err)}
	}
	if err := c.Check(); err != nil {
		return c, usageError{fmt.Errorf("bench: %w", err)}
	}
	return c, nil
}

func (b *benchFlags) subjects() ([]subject.Subject, error) {
	cells, err := pick("cell", b.cells, cell.All())
	if err != nil {
		return nil, err
	}
	base, err := pick("baseline", b.baselines, baseline.All())
	return append(base, cells...), err
}

// pick returns the named ones of all. A name without a mode means all of its modes.
func pick(what string, names []string, all []subject.Subject) (list []subject.Subject, err error) {
	for _, n := range names {
		found := n == "none"
		for _, s := range all {
			if n != "all" && n != s.Name && !strings.HasPrefix(s.Name, n+"/") {
				continue
			}
			found = true
			if !slices.ContainsFunc(list, func(o subject.Subject) bool { return o.Name == s.Name }) {
				list = append(list, s)
			}
		}
		if !found {
			return nil, fmt.Errorf("bench: no %s %q (there are: %s)", what, n, strings.Join(subjectNames(all), ", "))
		}
	}
	return list, nil
}

func subjectNames(all []subject.Subject) (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// within refuses counts of nothing, and such as no machine has.
func within(flag string, most int, list []int) error {
	for _, n := range list {
		if n < 1 || n > most {
			return usageError{fmt.Errorf("bench: --%s: %d is outside 1 to %d", flag, n, most)}
		}
	}
	return nil
}
