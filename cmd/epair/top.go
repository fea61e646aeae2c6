package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
)

func newTop(e *env) *cobra.Command {
	var once bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "top", Short: "Show pairs and workers live; keys change a pair's mode", Args: noArgs,
		Long: `Show pairs and workers live: rates, drops, queues, and how the workers spend their time.

  ↑ ↓         choose a pair           i p o   mode inline, pool, poller
  PgUp PgDn   a page                  q       quit

With --once, or --json, rates over one interval are printed, for scripts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval <= 0 {
				return usageError{errors.New("top: --interval must be above 0")}
			}
			if once || e.json {
				return e.watch(cmd.Context(), "", interval, 1)
			}
			return e.top(cmd.Context(), interval)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print rates once and end")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks")
	return cmd
}

func (e *env) top(ctx context.Context, interval time.Duration) (err error) {
	f, ok := e.out.Writer.(interface{ Fd() uintptr })
	if !ok || !hasTermios(int(f.Fd())) {
		return usageError{errors.New("top: the output isn't a terminal (use --once, or 'epair stat --watch')")}
	}
	c := e.client()
	defer c.Close()
	first, err := e.look(ctx, c)
	if err != nil {
		return err // before the screen is taken
	}
	s, err := openScreen(os.Stdin, e.out, int(f.Fd()))
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	m := &topModel{ctx: ctx, ask: c, env: e, before: first}
	m.rates = between(first, first)
	return m.run(s, interval)
}

// topModel is the state of the screen. Only run's goroutine touches it.
type topModel struct {
	ctx context.Context // of the command, which asks the daemon until it ends
	ask *control.Client
	env *env

	before  sample
	rates   rates
	chosen  string // name of a pair; empty: the first
	first   int    // pair in the first line
	width   int
	height  int
	message string // what the last key did, or what is wrong
}

// event is what a question or a change to the daemon came to; it changes the model.
type event func(*topModel)

// run shows m until a key or a signal ends it.
func (m *topModel) run(s *screen, interval time.Duration) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	keys, events := s.keys(), make(chan event)
	later := func(do func() event) {
		go func() {
			select {
			case events <- do():
			case <-m.ctx.Done():
			}
		}()
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		m.width, m.height = s.size()
		if err := s.show(m.view()); err != nil {
			return err
		}
		select {
		case <-m.ctx.Done():
			return nil // SIGINT or SIGTERM: as q
		case k, ok := <-keys:
			if !ok || k == "q" || k == "esc" {
				return nil
			}
			if do := m.key(k); do != nil {
				later(do)
			}
		case <-tick.C:
			later(m.look)
		case change := <-events:
			change(m)
		case <-resized:
		}
	}
}

// look asks for the counters.
func (m *topModel) look() event {
	s, err := m.env.look(m.ctx, m.ask)
	return func(m *topModel) {
		switch {
		case err != nil:
			m.message = err.Error()
		case s.at.After(m.before.at): // an answer that was late isn't shown
			m.rates, m.before = between(m.before, s), s
		}
	}
}

// key does what a key asks for. What the daemon is to be asked for it returns.
func (m *topModel) key(k string) func() event {
	page := max(m.pairLines(), 1)
	switch k {
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-page)
	case "pgdown":
		m.move(page)
	case "home", "g":
		m.move(-len(m.rates.Pairs))
	case "end", "G":
		m.move(len(m.rates.Pairs))
	}
	mode := map[string]string{"i": "inline", "p": "pool", "o": "poller"}[k]
	if mode == "" || len(m.rates.Pairs) == 0 {
		return nil
	}
	name := m.rates.Pairs[m.index()].Name
	m.message = fmt.Sprintf("setting %s to mode %s …", name, mode)
	return func() event { return m.setMode(name, mode) }
}

func (m *topModel) setMode(name, mode string) event {
	c, err := m.ask.Set(m.ctx, name, control.PairChange{Mode: mode})
	return func(m *topModel) {
		if err != nil {
			m.message = err.Error()
			return
		}
		m.message = fmt.Sprintf("%s is in mode %s: %s", c.Pair.Name, c.Pair.Mode, changeLine(c.Change))
	}
}

// index is the place of the chosen pair; the first if it's gone.
func (m *topModel) index() int {
	return max(slices.IndexFunc(m.rates.Pairs, func(p pairRate) bool { return p.Name == m.chosen }), 0)
}

// move chooses another pair, and scrolls so that it can be seen.
func (m *topModel) move(by int) {
	if n := len(m.rates.Pairs); n > 0 {
		m.chosen = m.rates.Pairs[min(max(m.index()+by, 0), n-1)].Name
	}
}
