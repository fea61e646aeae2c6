package main

import (
	"context"
	"encoding/hex"
	"errors"
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
	env     *env
	file    string
	live    bool
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
	cmd.AddCommand(newRSSShow(e), newRSSSet(e), newRSSExplain(e), newRSSWhatIf(e), newRSSCraft(e), newRSSRebalance(e))
	return cmd
}

func (f *rssFlags) register(e *env, cmd *cobra.Command) {
	f.env = e
	fl := cmd.Flags()
	fl.BoolVar(&f.live, "live", false, "take pool and rss from the running daemon")
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
	if f.live || f.file != "" {
		from := "live"
		if f.file != "" {
			from = "file"
		}
		for _, n := range []string{"live", "func", "key", "symmetric", "inner", "fields", "table", "workers"} {
			if n != from && cmd.Flags().Changed(n) {
				return nil, nil, fmt.Errorf("--%s: --%s says it already (leave one of them out)", n, from)
			}
		}
		if f.live {
			return f.running(cmd.Context())
		}
		return control.SteeringOf(f.file)
	}
	var err error
	if f.cfg.Fields, err = parseFields(f.fields); err != nil {
		return nil, nil, err
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

// running returns the hash and table of the daemon.
func (f *rssFlags) running(ctx context.Context) (*rss.Hasher, *rss.Table, error) {
	r, err := f.env.client().RSS(ctx)
	if err != nil {
		return nil, nil, notUsage{err}
	}
	return steeringOf(r)
}

// steeringOf makes a hash and a table of the daemon's words.
func steeringOf(r control.RSS) (*rss.Hasher, *rss.Table, error) {
	h, err := rss.New(rss.Config{Func: r.Func, Key: r.Key, Symmetric: r.Symmetric, Fields: r.Fields, Inner: r.Inner})
	if err != nil {
		return nil, nil, err
	}
	t, err := rss.ParseTable(list(r.Table), len(r.Table), r.Workers)
	return h, t, err
}

// list writes a table as a list of workers.
func list(table []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(table)), ","), "[]")
}

// parseFields reads words as udp4=sdfn.
func parseFields(words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, s := range words {
		k, v, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--fields %q: want TYPE=LETTERS, as udp4=sdfn", s)
		}
		m[k] = v
	}
	return m, nil
}

func newRSSShow(e *env) *cobra.Command {
	var f rssFlags
	cmd := &cobra.Command{
		Use: "show", Short: "Print hash function, key, fields and indirection table", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, t, err := f.resolve(cmd)
			if err != nil {
				return rssUsage(err)
			}
			if e.json {
				return e.printJSON(control.AnswerRSS(h, t))
			}
			e.printRSS(h, t)
			return nil
		},
	}
	f.register(e, cmd)
	return cmd
}

func (e *env) printRSS(h *rss.Hasher, t *rss.Table) {
	c := h.Config()
	fmt.Fprintf(e.out, "func %s  symmetric %t  inner %t\nkey %s\n", h.Func(), c.Symmetric, c.Inner, hex.EncodeToString(h.Key()))
	for t := range rss.FlowType(rss.NumFlowTypes) {
		fmt.Fprintf(e.out, "fields %-5s %s\n", t, h.Fields(t))
	}
	fmt.Fprintf(e.out, "\n%d workers, %d buckets\n%s", t.Workers(), t.Size(), t)
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
				return rssUsage(err)
			}
			if e.json {
				return e.printJSON(x)
			}
			e.printExplained(x)
			return nil
		},
	}
	f.register(e, cmd)
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
			return explained{}, errors.New("--frame: not whole bytes in hexadecimal, as 02:00:00:00:00:01 …")
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
