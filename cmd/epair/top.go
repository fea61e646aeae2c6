package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

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

func (e *env) top(ctx context.Context, interval time.Duration) error {
	f, ok := e.out.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(f.Fd()) {
		return usageError{errors.New("top: the output isn't a terminal (use --once, or 'epair stat --watch')")}
	}
	c := e.client()
	defer c.Close()
	first, err := e.look(ctx, c)
	if err != nil {
		return err // before the screen is taken
	}
	m := &topModel{ctx: ctx, ask: c, env: e, interval: interval, before: first, width: 80, height: 24}
	m.rates = between(first, first)
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithAltScreen(), tea.WithOutput(e.out)).Run()
	if ctx.Err() != nil {
		return nil // SIGINT or SIGTERM: as q
	}
	return err
}

// topModel is the state of the screen. It's bubbletea's alone.
type topModel struct {
	ctx      context.Context // of the command, which asks the daemon until it ends
	ask      *control.Client
	env      *env
	interval time.Duration

	before  sample
	rates   rates
	chosen  string // name of a pair; empty: the first
	first   int    // pair in the first line
	width   int
	height  int
	message string // what the last key did, or what is wrong
}

// Messages of the model.
type (
	lookMsg struct {
		sample
		err error
	}
	tickMsg struct{}
	setMsg  struct {
		control.Changed
		err error
	}
)

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.tick() }

func (m *topModel) tick() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
}

func (m *topModel) look() tea.Msg {
	s, err := m.env.look(m.ctx, m.ask)
	return lookMsg{s, err}
}

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		return m, m.look
	case lookMsg:
		if msg.err != nil {
			m.message = msg.err.Error()
		} else {
			m.rates, m.before = between(m.before, msg.sample), msg.sample
		}
		return m, m.tick()
	case setMsg:
		if m.message = changeLine(msg.Change); msg.err != nil {
			m.message = msg.err.Error()
		} else {
			m.message = fmt.Sprintf("%s is in mode %s: %s", msg.Pair.Name, msg.Pair.Mode, m.message)
		}
	case tea.KeyMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// key does what a key asks for.
func (m *topModel) key(k string) tea.Cmd {
	page := max(m.pairLines(), 1)
	modes := map[string]string{"i": "inline", "p": "pool", "o": "poller"}
	switch k {
	case "q", "esc", "ctrl+c":
		return tea.Quit
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
	if mode := modes[k]; mode != "" && len(m.rates.Pairs) > 0 {
		return m.setMode(m.rates.Pairs[m.index()].Name, mode)
	}
	return nil
}

func (m *topModel) setMode(name, mode string) tea.Cmd {
	m.message = fmt.Sprintf("setting %s to mode %s …", name, mode)
	return func() tea.Msg {
		c, err := m.ask.Set(m.ctx, name, control.PairChange{Mode: mode})
		return setMsg{c, err}
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
