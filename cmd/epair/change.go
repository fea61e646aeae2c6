package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
)

// The commands here change what a running daemon has.

func newAdd(e *env) *cobra.Command {
	var f addFlags
	cmd := &cobra.Command{
		Use:   "add NAME --a END --b END | add -f FILE",
		Short: "Create pairs while the daemon runs, all or none",
		Long: `Create a pair while the daemon runs, or all pairs that FILE names, all or none.

END is veth:IFNAME@NETNS, tap:IFNAME@NETNS or dev:IFNAME[@NETNS]; NETNS is a name, pid:N, a path or host. A
name that doesn't exist is created, and removed with its last pair.`,
		Example: `  epair add web --a veth:eth0@web --a-address 10.0.0.1/24 --b veth:eth0@db --b-address 10.0.0.2/24
  epair add up --a tap:tap0@vm --b dev:eth1 --mode inline`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			pairs, err := f.pairs(cmd, args)
			if err != nil {
				return asUsage(err)
			}
			return e.add(cmd.Context(), pairs)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.a, "a", "", "end a")
	fl.StringVar(&f.b, "b", "", "end b")
	fl.StringSliceVar(&f.addrA, "a-address", nil, "address of end a, as 10.0.0.1/24 (repeatable)")
	fl.StringSliceVar(&f.addrB, "b-address", nil, "address of end b (repeatable)")
	fl.StringVar(&f.cfg.Datapath, "datapath", "", "auto (default), direct, tc, xdp or user")
	fl.StringVar(&f.cfg.Mode, "mode", "", "pool (default), inline or poller")
	fl.StringVar(&f.cfg.Port, "port", "", "port of the user datapath: packet (default) or xdp")
	fl.IntVar(&f.cfg.MTU, "mtu", 0, "MTU (default: that of a dev end, else 1500)")
	fl.IntVar(&f.cfg.Ring, "ring", 0, "slots of a packet port's receive ring")
	fl.BoolVar(&f.cfg.Persist, "persist", false, "the pair goes on without the daemon, and the next one adopts it (datapaths direct and tc)")
	fl.StringVarP(&f.file, "file", "f", "", "create the pairs of this configuration file")
	return cmd
}

type addFlags struct {
	a, b, file   string
	addrA, addrB []string
	cfg          epair.PairConfig
}

// pairs returns what the command line says.
func (f *addFlags) pairs(cmd *cobra.Command, args []string) ([]epair.PairConfig, error) {
	if f.file != "" {
		if len(args) > 0 || cmd.Flags().NFlag() > countSet(cmd, "file", "socket", "json") {
			return nil, usageError{errors.New("add: the file says it all (leave out the name and all other flags)")}
		}
		return pairsOf(f.file)
	}
	if err := exactly("NAME")(cmd, args); err != nil {
		return nil, err
	}
	if f.a == "" || f.b == "" {
		return nil, usageError{fmt.Errorf("add: a pair has two ends (name them with --a END --b END; see '%s --help')", cmd.CommandPath())}
	}
	c := f.cfg
	c.Name = args[0]
	var err error
	if c.A, err = epair.ParseEnd(f.a); err != nil {
		return nil, fmt.Errorf("--a: %w", err)
	}
	if c.B, err = epair.ParseEnd(f.b); err != nil {
		return nil, fmt.Errorf("--b: %w", err)
	}
	c.A.Addresses, c.B.Addresses = f.addrA, f.addrB
	return []epair.PairConfig{c}, c.Check()
}

// countSet returns how many of the named flags were given.
func countSet(cmd *cobra.Command, names ...string) (n int) {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			n++
		}
	}
	return n
}

// pairsOf returns the pairs of a file that says nothing else.
func pairsOf(file string) ([]epair.PairConfig, error) {
	cfg, err := control.Load(file)
	if err != nil {
		return nil, usageError{err}
	}
	if cfg.Pool != (epair.PoolConfig{}) || !reflect.DeepEqual(cfg.RSS, epair.RSSConfig{}) || cfg.Poller != (epair.PollerConfig{}) {
		return nil, usageError{fmt.Errorf("add -f %s: it also sets pool, rss or poller, which are the running daemon's (use a file with pairs only)", file)}
	}
	if len(cfg.Pairs) == 0 {
		return nil, usageError{fmt.Errorf("add -f %s: it names no pairs", file)}
	}
	return cfg.Pairs, nil
}

func (e *env) add(ctx context.Context, pairs []epair.PairConfig) error {
	added, err := e.client().Add(ctx, pairs...)
	if err != nil {
		return asUsage(err)
	}
	if e.json {
		return e.printJSON(control.Pairs{Pairs: added})
	}
	for _, p := range added {
		printAdded(e.out, p)
	}
	return nil
}

// printAdded says what was made of a configuration, and why.
func printAdded(w io.Writer, p control.Pair) {
	fmt.Fprintf(w, "%s  %s/%s  %s — %s  (%s)\n", p.Name, p.Datapath, p.Mode, endName(p.A), endName(p.B), strings.Join(p.Why, "; "))
}

func newDel(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "del NAME…", Aliases: []string{"delete"},
		Short: "Delete pairs and all that was created for them",
		Long:  `Delete pairs and all that was created for them. If there is no pair of one of the names, nothing is deleted.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("NAME…")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: e.completePairs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := e.client().Remove(cmd.Context(), args...)
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(r)
			}
			fmt.Fprintln(e.out, "deleted", strings.Join(r.Removed, " "))
			return nil
		},
	}
}

func newSet(e *env) *cobra.Command {
	var lossless bool
	cmd := &cobra.Command{
		Use: "set NAME KEY=VALUE…", Short: "Change a pair while its frames pass",
		Long: `Change a pair while its frames pass; none is overtaken.

  mode=inline|pool|poller       where the work runs
  datapath=tc|xdp|user          what carries the frames of a pair of veths; refused where that needs a new pair

Another datapath drops and counts the frames that come while the old one is emptied and the new one begins; so does
mode poller of the datapaths direct and tc, both ways.`,
		Example: `  epair set web mode=poller
  epair set web datapath=xdp mode=pool`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exactly("NAME", "KEY=VALUE…")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: e.completeSet,
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := parseSet(args[1:])
			if err != nil {
				return err
			}
			want.Lossless = lossless
			c, err := e.client().Set(cmd.Context(), args[0], want)
			if err != nil {
				return asUsage(err)
			}
			if e.json {
				return e.printJSON(c)
			}
			fmt.Fprintf(e.out, "%s  %s/%s  %s\n", c.Pair.Name, c.Pair.Datapath, c.Pair.Mode, changeLine(c.Change))
			return nil
		},
	}
	cmd.Flags().BoolVar(&lossless, "lossless", false, "refuse what can't be done without dropping frames")
	return cmd
}

// parseSet reads KEY=VALUE words.
func parseSet(words []string) (c control.PairChange, err error) {
	to := map[string]*string{"mode": &c.Mode, "datapath": &c.Datapath}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok || value == "":
			return c, usageError{fmt.Errorf("set: %q: want KEY=VALUE, as mode=pool", w)}
		case to[key] == nil:
			return c, usageError{fmt.Errorf("set: unknown key %q (use mode or datapath)", key)}
		case *to[key] != "":
			return c, usageError{fmt.Errorf("set: %s is there twice", key)}
		}
		*to[key] = value
	}
	return c, nil
}

// changeLine says in one line what a live change did.
func changeLine(c control.Change) string {
	if c == (control.Change{}) {
		return "nothing to change"
	}
	s := fmt.Sprintf("took %s", micros(c.TookMicros))
	if c.Moved > 0 {
		s += fmt.Sprintf(", moved %d buckets (%d with frames in flight)", c.Moved, c.Held)
	}
	if c.Lanes > 0 {
		s += fmt.Sprintf(", %d directions to another reader", c.Lanes)
	}
	if c.Dropped > 0 {
		s += fmt.Sprintf(", dropped %d frames to keep their order", c.Dropped)
	}
	if c.BlockedMicros > 0 {
		s += ", frames waited or were dropped for up to " + micros(c.BlockedMicros)
	}
	return s
}

// micros prints microseconds with a unit that suits.
func micros(us float64) string {
	d := time.Duration(us * float64(time.Microsecond))
	if d >= time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return cmp.Or(d.Round(100*time.Nanosecond).String(), "0s")
}
