// Command epair joins network interfaces with a wire whose work is spread over
// the machine's cores.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/epair-net/epair/control"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1 // what was asked could not be done, or an audit found something
	exitUsage  = 2 // the command line or a file is wrong
)

// usageError is a mistake in what the user typed or wrote, not in what happened.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// env is what a command sees of the world, so that tests can give it another.
type env struct {
	out    *output
	err    io.Writer
	socket string
	json   bool
	told   time.Time // when a log last heard of a bench's progress
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, args []string, out, errw io.Writer) int {
	written := &output{Writer: out}
	e := &env{out: written, err: errw}
	root := newRoot(e)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, errQuiet) {
		err = cmp.Or(written.err, err)
	}
	if err == nil {
		return exitDone
	}
	if !errors.Is(err, errQuiet) {
		fmt.Fprintln(errw, "epair:", control.OneLine(err))
	}
	var ue usageError
	if errors.As(err, &ue) {
		return exitUsage
	}
	return exitFailed
}

// errQuiet ends a command with exitFailed after it has said why.
var errQuiet = errors.New("failed")

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "epair",
		Short:         "Join network interfaces with a wire that uses all cores",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q (see 'epair --help')", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{explainFlag(err)} })
	socket := os.Getenv("EPAIR_SOCKET")
	if socket == "" {
		socket = control.DefaultSocket
	}
	root.PersistentFlags().StringVar(&e.socket, "socket", socket, "the daemon's socket (EPAIR_SOCKET)")
	root.PersistentFlags().BoolVar(&e.json, "json", false, "print JSON")
	root.AddCommand(newDemo(e), newRun(e), newAdd(e), newDel(e), newSet(e), newList(e), newShow(e), newStat(e), newTop(e),
		newAudit(e), newRSS(e), newPool(e), newGC(e), newDoctor(e), newBench(e), newVersion(e))
	return root
}

// output remembers the first error of writing: few of those who print look at it, and a command whose answer got
// lost has failed.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// explainFlag says in the user's words what is wrong with the value of a flag.
func explainFlag(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want := map[string]string{
		"bool": "true or false", "duration": "a duration, as 500ms or 1m30s", "int": "a whole number", "uint64": "a whole number from 0 up",
		"intSlice": "whole numbers with commas between",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s: want %s, not %q", bad.GetFlag().Name, want, bad.GetValue())
}

// noArgs and exactly are cobra's checks with our exit status.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s: unexpected argument %q (see '%s --help')", cmd.Name(), args[0], cmd.CommandPath())}
	}
	return nil
}

func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageError{fmt.Errorf("%s: needs %s (see '%s --help')", cmd.Name(), strings.Join(names, " "), cmd.CommandPath())}
	}
}
