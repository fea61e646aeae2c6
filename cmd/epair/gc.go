package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

func newGC(e *env) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what crashed daemons have left", Args: noArgs,
		Long: `Remove what crashed daemons have left: interfaces and namespaces that carry the tag of an instance that
no longer runs. Nothing else is touched. No daemon need run.`,
		RunE: func(*cobra.Command, []string) error { return e.gc(dry) },
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	return cmd
}

func (e *env) gc(dry bool) error {
	f, verb := epair.GC, "removed"
	if dry {
		f, verb = epair.Garbage, "would remove"
	}
	found, err := f("")
	if e.json {
		g := control.Garbage{Found: found, Removed: !dry && err == nil}
		if found == nil {
			g.Found = []string{}
		}
		return errors.Join(e.printJSON(g), err)
	}
	for _, what := range found {
		fmt.Fprintln(e.out, verb, what)
	}
	if len(found) == 0 && err == nil {
		fmt.Fprintln(e.out, "nothing is left of a crash")
	}
	return err
}
