package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

func newRun(e *env) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "run -f FILE", Args: noArgs,
		Short: "Create the pairs that FILE names and forward until SIGINT or SIGTERM",
		Long: `Create the pairs that FILE names, forward, and answer on the socket until SIGINT
or SIGTERM; then undo all that was made. What a crash left behind is cleaned at
the start.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context(), file) },
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration (epair/v1)")
	return cmd
}

func (e *env) run(ctx context.Context, file string) error {
	if file == "" {
		return usageError{errors.New("run: no configuration (name one with -f FILE)")}
	}
	cfg, err := control.Load(file)
	if err != nil {
		return asUsage(err)
	}
	for _, w := range cfg.Warnings() {
		fmt.Fprintln(e.err, "epair: warning:", w)
	}
	// The socket first: a second daemon is refused before it has made anything.
	ln, err := control.Listen(ctx, e.socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	d, err := control.Start(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting, and undone
		}
		return asUsage(err)
	}
	for _, p := range d.Pairs() {
		fmt.Fprintf(e.out, "%s  %s/%s  %s — %s  (%s)\n", p.Name, p.Datapath, p.Mode, endName(p.A), endName(p.B), strings.Join(p.Why, "; "))
	}
	fmt.Fprintf(e.out, "%d pairs forwarding, answering on %s\n", len(cfg.Pairs), e.socket)
	return errors.Join(d.Serve(ctx, ln), d.Close())
}

// asUsage marks mistakes in a file as such.
func asUsage(err error) error {
	if errors.Is(err, epair.ErrConfig) || errors.Is(err, fs.ErrNotExist) {
		return usageError{err}
	}
	return err
}
