package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/rss"
)

// crafted is a flow that lands on a worker.
type crafted struct {
	Tuple  string `json:"tuple"`
	Hash   string `json:"hash"`
	Bucket int    `json:"bucket"`
	Worker int    `json:"worker"`
}

func newRSSCraft(e *env) *cobra.Command {
	var f rssFlags
	var worker, count int
	const mostFlows = 1 << 16 // a list that long is still made in a second
	cmd := &cobra.Command{
		Use: "craft --worker K [PROTO SRC[:PORT] DST:PORT]", Short: "Find flows that land on a worker",
		Long: `Find flows that land on a worker. They are like the flow given but for the source port, which counts up from that
given, or from 1024; where it isn't hashed, the source address does. Without a flow, udp 10.0.0.1 10.0.0.2:9 is taken.`,
		Example: "  epair rss craft --worker 1 --count 4 --live tcp 10.0.0.1 10.0.0.2:5201",
		RunE: func(cmd *cobra.Command, args []string) error {
			h, t, err := f.resolve(cmd)
			if err != nil {
				return rssUsage(err)
			}
			if !cmd.Flags().Changed("worker") || worker < 0 || worker >= t.Workers() || count < 1 || count > mostFlows {
				return usageError{fmt.Errorf("rss craft: name --worker, from 0 to %d, and --count, from 1 to %d", t.Workers()-1, mostFlows)}
			}
			tuple, err := parseCraft(args)
			if err != nil {
				return usageError{err}
			}
			flows, err := rss.Craft(h, t, tuple, worker, count)
			if err != nil {
				return err
			}
			found := make([]crafted, len(flows))
			for i, flow := range flows {
				hash, err := h.HashTuple(flow)
				if err != nil {
					return err
				}
				found[i] = crafted{flow.String(), fmt.Sprintf("%08x", hash), t.Bucket(hash), worker}
			}
			if e.json {
				return e.printJSON(found)
			}
			for _, c := range found {
				fmt.Fprintf(e.out, "%s  hash %s  bucket %d  worker %d\n", c.Tuple, c.Hash, c.Bucket, c.Worker)
			}
			return nil
		},
	}
	f.register(e, cmd)
	cmd.Flags().IntVar(&worker, "worker", 0, "the worker to hit")
	cmd.Flags().IntVar(&count, "count", 1, "how many flows")
	return cmd
}

// parseCraft reads a tuple whose source may have no port where the destination has one.
func parseCraft(words []string) (rss.Tuple, error) {
	const firstPort = 1024 // behind those of services
	words = strings.Fields(cmp.Or(strings.Join(words, " "), "udp 10.0.0.1 10.0.0.2:9"))
	for i := range len(words) - 1 {
		src, errSrc := netip.ParseAddr(words[i])
		if _, errDst := netip.ParseAddrPort(words[i+1]); errSrc == nil && errDst == nil {
			words[i] = netip.AddrPortFrom(src, firstPort).String()
		}
	}
	return rss.ParseTuple(strings.Join(words, " "))
}
