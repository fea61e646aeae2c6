package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/epair-net/epair/bench/compare"
	"github.com/epair-net/epair/bench/report"
	"github.com/epair-net/epair/internal/caps"
)

// benchProgress shows how far a run is.
func (e *env) benchProgress(p compare.Progress) {
	left := ""
	if p.Left > 0 {
		left = ", " + p.Left.Round(time.Second).String() + " left"
	}
	line := fmt.Sprintf("%d of %d%s: %s", p.Done, p.Total, left, p.What)
	switch {
	case isTerminal(e.err):
		e.progress("%s", line)
	case e.json:
	case time.Since(e.told) >= logEvery: // at once, at first
		e.told = time.Now()
		fmt.Fprintln(e.err, line)
	}
}

// logEvery is how often a log that is no terminal hears of the progress.
const logEvery = 10 * time.Second

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && hasTermios(int(f.Fd()))
}

// bench runs one scenario.
func (e *env) bench(ctx context.Context, b *benchFlags, scenario string, m compare.Measure) error {
	c, err := b.config(e, m, scenario)
	if err != nil {
		return err
	}
	return e.runBench(ctx, c, b)
}

// runBench measures, and prints and writes what was finished, also when interrupted.
func (e *env) runBench(ctx context.Context, c compare.Config, b *benchFlags) error {
	e.json = b.json == "-"
	for _, path := range []string{b.json, b.html} {
		if path == "" || path == "-" {
			continue
		}
		if err := report.Writable(path); err != nil {
			return usageError{fmt.Errorf("bench: %w", err)}
		}
	}
	f, err := compare.Run(ctx, c)
	e.progress("")
	if err != nil && !measured(f) {
		if ctx.Err() != nil {
			return errors.New("bench: interrupted before anything was measured; everything it made is gone")
		}
		return caps.Explain(err, caps.SysAdmin, caps.NetAdmin, caps.BPF)
	}
	if werr := e.writeBench(f, b); werr != nil {
		return errors.Join(err, werr)
	}
	if ctx.Err() != nil {
		return errors.New("bench: interrupted; what was finished is shown, everything it made is gone")
	}
	return err
}

// measured says whether a report, which may be nil, has any figure.
func measured(f *report.File) bool {
	return f != nil && slices.ContainsFunc(f.Rows, func(r report.Row) bool { return len(r.Rounds) > 0 || r.Refused != "" })
}

// writeBench writes files first: whoever reads the table may not read it to its end (head).
func (e *env) writeBench(f *report.File, b *benchFlags) error {
	var errs []error
	if b.json != "" && b.json != "-" {
		errs = append(errs, report.WriteFile(b.json, f.Write))
	}
	if b.html != "" {
		errs = append(errs, report.WriteFile(b.html, func(w io.Writer) error { return f.HTML(w) }))
	}
	if b.json == "-" {
		errs = append(errs, f.Write(e.out))
	} else {
		errs = append(errs, f.Text(e.out))
	}
	return errors.Join(errs...)
}
