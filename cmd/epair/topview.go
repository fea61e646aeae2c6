package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The screen, from above:
//
//	1   sum over all
//	1   empty
//	1   head of the pairs
//	n   pairs, scrolled so that the chosen one is seen
//	1   empty
//	1   head of the workers
//	m   workers, a third of the screen at most
//	1   message, or what keys do
const frameLines = 6

// A line of each table is 80 columns wide at most.
const (
	pairFormat   = " %-15s %-13s %-5s %7s %6s %7s %6s %6s %6s"
	workerFormat = " %-13s %3v %5s %5s %8s %6s %7s %7s %8s  %s"
	keyHelp      = " ↑↓ choose   i inline   p pool   o poller   q quit"
)

func pairHead() string {
	return fmt.Sprintf(pairFormat, "PAIR", "MODE", "STATE", "a→b/s", "bit/s", "b→a/s", "bit/s", "DROP/s", "QUEUED")
}

func workerHead() string {
	return fmt.Sprintf(workerFormat, "WORKER", "CPU", "BUSY", "WAIT", "FRAMES/s", "QUEUE", "p99", "EMPTY/s", "SLEEPS/s", "PAIR")
}

// ANSI sequences of what stands out (ECMA-48, SGR).
const (
	bold, inverse, plain = "\x1b[1m", "\x1b[7m", "\x1b[0m"
)

// pairLines is how many pairs fit.
func (m *topModel) pairLines() int { return m.height - frameLines - m.workerLines() }

func (m *topModel) workerLines() int { return min(len(m.rates.Workers), max(m.height/3, 1)) }

// view returns the lines of the screen.
func (m *topModel) view() []string {
	lines := []string{m.summary(), "", m.styled(bold, pairHead())}
	lines = append(lines, m.pairView()...)
	lines = append(lines, "", m.styled(bold, workerHead()))
	for i := range m.workerLines() {
		lines = append(lines, m.fit(workerLine(&m.rates.Workers[i])))
	}
	last := keyHelp
	if m.message != "" {
		last = " " + m.message
	}
	return append(lines, m.fit(last))
}

func (m *topModel) summary() string {
	var fps, bits, drops float64
	down := 0
	for i := range m.rates.Pairs {
		p := &m.rates.Pairs[i]
		if p.State != "up" {
			down++
		}
		for _, d := range []*dirRate{&p.AB, &p.BA} {
			fps, bits, drops = fps+d.Tx, bits+d.TxBits, drops+d.Drops
		}
	}
	return m.fit(fmt.Sprintf(" %d pairs, %d not up, %d workers: %s frames/s, %s bit/s, %s drops/s",
		len(m.rates.Pairs), down, len(m.rates.Workers), si(fps), si(bits), si(drops)))
}

// pairView returns the lines of the pairs, which fill their part of the screen.
func (m *topModel) pairView() []string {
	n := max(m.pairLines(), 1)
	chosen := m.index()
	m.first = min(max(m.first, chosen-n+1), chosen)
	m.first = max(min(m.first, len(m.rates.Pairs)-n), 0)
	lines := make([]string, n)
	for i := range lines {
		switch at := m.first + i; {
		case len(m.rates.Pairs) == 0 && i == 0:
			lines[i] = m.fit(" no pairs (add one with 'epair add')")
		case at >= len(m.rates.Pairs):
		case at == chosen:
			lines[i] = m.styled(inverse, pairLine(&m.rates.Pairs[at]))
		default:
			lines[i] = m.fit(pairLine(&m.rates.Pairs[at]))
		}
	}
	return lines
}

func pairLine(p *pairRate) string {
	return fmt.Sprintf(pairFormat, clip(p.Name, 15), p.Datapath+"/"+p.Mode, p.State, si(p.AB.Tx), si(p.AB.TxBits), si(p.BA.Tx), si(p.BA.TxBits),
		si(p.AB.Drops+p.BA.Drops), si(float64(p.AB.Queued+p.BA.Queued)))
}

func workerLine(w *workerRate) string {
	return fmt.Sprintf(workerFormat, clip(w.Name, 13), w.CPU, percent(w.Busy), percent(w.Wait), si(w.Frames), si(float64(w.Queue)), micros(w.P99), si(w.Empty), si(w.Sleeps), w.Pair)
}

// clip shortens s to n characters, and shows that it did.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// fit keeps a line in the screen. Each character that we print is one column wide.
func (m *topModel) fit(line string) string { return clip(line, max(m.width, 1)) }

// styled fills the line, so that what stands out does from edge to edge.
func (m *topModel) styled(style, line string) string {
	line = m.fit(line)
	return style + line + strings.Repeat(" ", max(m.width-utf8.RuneCountInString(line), 0)) + plain
}
