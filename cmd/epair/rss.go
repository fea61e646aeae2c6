package main

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/rss"
)

// rssFlags are the settings that decide which worker owns a flow, as the
// configuration file has them.
type rssFlags struct {
	file    string
	cfg     rss.Config
	fields  []string
	table   string
	workers int
}

func newRSS(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rss", Short: "Show which worker owns which flow, and why", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRSSShow(e), newRSSExplain(e))
	return cmd
}

func (f *rssFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "file", "f", "", "take pool and rss from this configuration file")
	fl.StringVar(&f.cfg.Func, "func", "toeplitz", "hash function: toeplitz or xxhash")
	fl.StringVar(&f.cfg.Key, "key", "default", "RSS key: default, symmetric, or 40 to 52 bytes in hex")
	fl.BoolVar(&f.cfg.Symmetric, "symmetric", false, "the same hash for both directions of a flow")
	fl.BoolVar(&f.cfg.Inner, "inner", false, "hash what is inside tunnels")
	fl.StringSliceVar(&f.fields, "fields", nil, "fields of a flow type, as udp4=sdfn (repeatable)")
	fl.StringVar(&f.table, "table", "equal", "indirection table: equal [N], weight W0 W1 …, or a list of workers")
	fl.IntVar(&f.workers, "workers", 0, "number of workers (default: the CPUs this process may use)")
}

// resolve returns the hash and table that the flags, or the file, name.
func (f *rssFlags) resolve(cmd *cobra.Command) (*rss.Hasher, *rss.Table, error) {
	if f.file != "" {
		for _, n := range []string{"func", "key", "symmetric", "inner", "fields", "table", "workers"} {
			if cmd.Flags().Changed(n) {
				return nil, nil, fmt.Errorf("--%s: the file says it already (leave out --file or --%s)", n, n)
			}
		}
		return control.SteeringOf(f.file)
	}
	for _, s := range f.fields {
		k, v, ok := strings.Cut(s, "=")
		if !ok {
			return nil, nil, fmt.Errorf("--fields %q: want TYPE=LETTERS, as udp4=sdfn", s)
		}
		if f.cfg.Fields == nil {
			f.cfg.Fields = map[string]string{}
		}
		f.cfg.Fields[k] = v
	}
	if f.workers == 0 {
		allowed, err := cpus.Allowed()
		if err != nil {
			return nil, nil, err
		}
		f.workers = len(allowed)
	}
	h, err := rss.New(f.cfg)
	if err != nil {
		return nil, nil, err
	}
	t, err := rss.ParseTable(f.table, 0, f.workers)
	return h, t, err
}

// rssState is what `rss show --json` prints.
type rssState struct {
	rss.Config
	Workers int   `json:"workers"`
	Table   []int `json:"table"`
}

func newRSSShow(e *env) *cobra.Command {
	var f rssFlags
	cmd := &cobra.Command{
		Use: "show", Short: "Print hash function, key, fields and indirection table", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, t, err := f.resolve(cmd)
			if err != nil {
				return usageError{err}
			}
			if e.json {
				s := rssState{Config: h.Config(), Workers: t.Workers()}
				for b := range t.Size() {
					s.Table = append(s.Table, t.Worker(b))
				}
				return e.printJSON(s)
			}
			c := h.Config()
			fmt.Fprintf(e.out, "func %s  symmetric %t  inner %t\nkey %s\n", h.Func(), c.Symmetric, c.Inner, hex.EncodeToString(h.Key()))
			for t := range rss.FlowType(rss.NumFlowTypes) {
				fmt.Fprintf(e.out, "fields %-5s %s\n", t, h.Fields(t))
			}
			fmt.Fprintf(e.out, "\n%d workers, %d buckets\n%s", t.Workers(), t.Size(), t)
			return nil
		},
	}
	f.register(cmd)
	return cmd
}

// explained is what `rss explain --json` prints: hash in hexadecimal.
type explained struct {
	rss.Explanation
	Hash   string `json:"hash"`
	Bucket int    `json:"bucket"`
	Worker int    `json:"worker"`
}

func newRSSExplain(e *env) *cobra.Command {
	var f rssFlags
	var frame string
	cmd := &cobra.Command{
		Use:   "explain PROTO SRC[:PORT] DST[:PORT] | --frame HEX",
		Short: "Say what is hashed of a flow or frame, and which worker it lands on",
		Example: `  epair rss explain tcp 10.0.0.1:5000 10.0.0.2:80
  epair rss explain udp [2001:db8::1]:53 [2001:db8::2]:999 --symmetric --workers 4`,
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := f.explain(cmd, strings.Join(args, " "), frame)
			if err != nil {
				return usageError{err}
			}
			if e.json {
				return e.printJSON(x)
			}
			e.printExplained(x)
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&frame, "frame", "", "a whole frame in hex, from its destination MAC address on")
	return cmd
}

func (f *rssFlags) explain(cmd *cobra.Command, tuple, frame string) (explained, error) {
	h, t, err := f.resolve(cmd)
	if err != nil {
		return explained{}, err
	}
	var x rss.Explanation
	switch {
	case (tuple == "") == (frame == ""):
		return explained{}, fmt.Errorf("rss explain: want either a tuple or --frame (see '%s --help')", cmd.CommandPath())
	case frame != "":
		b, err := hex.DecodeString(strings.NewReplacer(":", "", " ", "").Replace(frame))
		if err != nil {
			return explained{}, fmt.Errorf("--frame: %w", err)
		}
		x = h.Explain(b)
	default:
		tu, err := rss.ParseTuple(tuple)
		if err != nil {
			return explained{}, err
		}
		if x, err = h.ExplainTuple(tu); err != nil {
			return explained{}, err
		}
	}
	b := t.Bucket(x.Hash)
	return explained{x, fmt.Sprintf("%08x", x.Hash), b, t.Worker(b)}, nil
}

func (e *env) printExplained(x explained) {
	fmt.Fprintf(e.out, "flow    %s", x.Type)
	if x.Source != "" {
		fmt.Fprintf(e.out, "  %s → %s", x.Source, x.Destination)
	}
	if x.Inner {
		fmt.Fprint(e.out, "  (inside a tunnel)")
	}
	fmt.Fprintf(e.out, "\nfields  %s", x.Fields)
	if x.Why != "" {
		fmt.Fprintf(e.out, "  (%s)", x.Why)
	}
	if x.Swapped {
		fmt.Fprint(e.out, "  (symmetric: ends exchanged)")
	}
	fmt.Fprintf(e.out, "\nbytes   %s\nhash    %s  (%s)\nbucket  %d\nworker  %d\n", x.Bytes, x.Hash, x.Func, x.Bucket, x.Worker)
}
