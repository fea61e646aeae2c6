package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

func newGC(e *env) *cobra.Command {
	var dry, all bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what crashed daemons have left", Args: noArgs,
		Long: `Remove what crashed daemons have left: interfaces and namespaces that carry the tag of an instance that
no longer runs. Nothing else is touched. No daemon need run.

Persistent pairs (persist: true) go on without a daemon: they are listed, and stay. With --all those that no
daemon looks after are removed too.`,
		RunE: func(*cobra.Command, []string) error { return e.gc(dry, all) },
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	cmd.Flags().BoolVar(&all, "all", false, "remove persistent pairs without a daemon too")
	return cmd
}

func (e *env) gc(dry, all bool) error {
	verb := "removed"
	if dry {
		verb = "would remove"
	}
	left, err := epair.Sweep("", dry, all)
	if e.json {
		g := control.AnswerLitter(left)
		g.Removed = !dry && err == nil
		return errors.Join(e.printJSON(g), err)
	}
	for _, what := range left.Garbage {
		fmt.Fprintln(e.out, verb, what)
	}
	for _, what := range left.Kept {
		fmt.Fprintln(e.out, "kept", what+": persistent, no daemon")
	}
	if len(left.Garbage)+len(left.Kept) == 0 && err == nil {
		fmt.Fprintln(e.out, "nothing is left of a crash")
	}
	return err
}
