package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/internal/cpus"
)

func newDoctor(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what this kernel and these privileges allow, cell by cell", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			r := control.Doctor()
			if e.json {
				return e.printJSON(r)
			}
			fmt.Fprintf(e.out, "CPUs for workers: %s\n\n", cpus.Format(r.CPUs))
			if err := e.printChecks("NEEDED", r.Needs); err != nil {
				return err
			}
			fmt.Fprintln(e.out)
			return e.printChecks("CELL", r.Cells)
		},
	}
}

func (e *env) printChecks(head string, checks []control.Check) error {
	t := e.table(head, "", "REASON", "CURE")
	for _, c := range checks {
		ok := "no"
		if c.OK {
			ok = "yes"
		}
		t.row(c.Name, ok, c.Reason, c.Cure)
	}
	return t.Flush()
}
