package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

func newRun(e *env) *cobra.Command {
	var file, metrics string
	var expedite bool
	cmd := &cobra.Command{
		Use: "run [-f FILE]", Args: noArgs,
		Short: "Create the pairs that FILE names and forward until SIGINT or SIGTERM",
		Long: `Create the pairs that FILE names, forward, and answer on the socket until SIGINT
or SIGTERM; then undo all that was made. What a crash left behind is cleaned at
the start. Without FILE there are no pairs until 'epair add' makes some.

Persistent pairs (persist: true) go on until 'epair del' or 'epair gc --all'; the next start adopts them.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context(), file, metrics, expedite) },
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration (epair/v1)")
	cmd.Flags().StringVar(&metrics, "metrics", "", "answer Prometheus on this TCP address too, as 127.0.0.1:9469 (default: on the socket only)")
	cmd.Flags().BoolVar(&expedite, "expedite", false, "while 8 pairs or more come or go, let the kernel hurry (/sys/kernel/rcu_expedited), which interrupts all CPUs")
	return cmd
}

func (e *env) run(ctx context.Context, file, metrics string, expedite bool) error {
	cfg := &epair.Config{Version: epair.Version}
	if file != "" {
		var err error
		if cfg, err = control.Load(file); err != nil {
			return usageError{err}
		}
	}
	for _, w := range cfg.Warnings() {
		fmt.Fprintln(e.err, "epair: warning:", w)
	}
	// The sockets first: a second daemon is refused before it has made anything.
	ln, err := control.Listen(ctx, e.socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	var tcp net.Listener
	if metrics != "" {
		if tcp, err = net.Listen("tcp", metrics); err != nil {
			return fmt.Errorf("serve metrics on %s: %w", metrics, withoutAddress(err))
		}
		defer tcp.Close()
	}
	var options []control.Option
	if expedite {
		options = append(options, control.Expedite())
	}
	d, err := control.Start(ctx, cfg, options...)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting, and undone
		}
		return asUsage(err)
	}
	for _, p := range d.Pairs() {
		printAdded(e.out, p)
	}
	e.warnKept(file)
	fmt.Fprintf(e.out, "%s forwarding, answering on %s\n", count(len(cfg.Pairs), "pair"), e.socket)
	if tcp != nil {
		fmt.Fprintf(e.out, "metrics on http://%s/metrics\n", tcp.Addr())
	}
	return errors.Join(serve(ctx, d, ln, tcp), d.Close())
}

// warnKept tells of persistent pairs that no daemon looks after: this one's file doesn't name them.
func (e *env) warnKept(file string) {
	left, err := epair.Sweep("", true, false)
	if err != nil {
		fmt.Fprintln(e.err, "epair: warning: look for persistent pairs:", err)
	}
	for _, what := range left.Kept {
		fmt.Fprintf(e.err, "epair: warning: %s goes on, and isn't in %s (epair gc --all removes it)\n", what, cmp.Or(file, "a file"))
	}
}

// serve answers until ctx ends, or one of the listeners fails.
func serve(ctx context.Context, d *control.Daemon, ln, tcp net.Listener) error {
	if tcp == nil {
		return d.Serve(ctx, ln)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		defer stop()
		failed <- d.ServeMetrics(ctx, tcp)
	}()
	err := d.Serve(ctx, ln)
	stop()
	return errors.Join(err, <-failed)
}

// withoutAddress is an error of net without the address, which the caller names.
func withoutAddress(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var a *net.AddrError
	if errors.As(err, &a) {
		return errors.New(a.Err)
	}
	return err
}

// count is "1 pair", "2 pairs".
func count[N int | uint64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// asUsage marks mistakes in a file or request as such.
func asUsage(err error) error {
	if errors.Is(err, epair.ErrConfig) || errors.Is(err, control.ErrRequest) {
		return usageError{err}
	}
	return err
}
