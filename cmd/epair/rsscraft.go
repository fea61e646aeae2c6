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
	cmd := &cobra.Command{
		Use: "craft --worker K [PROTO SRC[:PORT] DST:PORT]", Short: "Find flows that land on a worker",
		Long: `Find flows that land on a worker, by trying source ports from that of the flow given, or from 1024, up. Without a
flow, udp 10.0.0.1 10.0.0.2:9 is taken.`,
		Example: "  epair rss craft --worker 1 --count 4 --live tcp 10.0.0.1 10.0.0.2:5201",
		RunE: func(cmd *cobra.Command, args []string) error {
			h, t, err := f.resolve(cmd)
			if err != nil {
				return rssUsage(err)
			}
			if !cmd.Flags().Changed("worker") || worker < 0 || worker >= t.Workers() || count < 1 {
				return usageError{fmt.Errorf("rss craft: name --worker, from 0 to %d, and --count, from 1", t.Workers()-1)}
			}
			tuple, err := parseCraft(args)
			if err != nil {
				return usageError{err}
			}
			found, err := craft(h, t, tuple, worker, count)
			if err != nil {
				return err
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

// parseCraft reads a tuple whose source may have no port.
func parseCraft(words []string) (rss.Tuple, error) {
	words = strings.Fields(cmp.Or(strings.Join(words, " "), "udp 10.0.0.1 10.0.0.2:9"))
	if len(words) == 3 {
		if a, err := netip.ParseAddr(words[1]); err == nil {
			words[1] = netip.AddrPortFrom(a, 0).String()
		}
	}
	return rss.ParseTuple(strings.Join(words, " "))
}

// craft tries source ports.
func craft(h *rss.Hasher, t *rss.Table, tuple rss.Tuple, worker, count int) (found []crafted, err error) {
	const firstPort, lastPort = 1024, 65535 // behind those of services
	for port := cmp.Or(int(tuple.Src.Port()), firstPort); port <= lastPort && len(found) < count; port++ {
		tuple.Src = netip.AddrPortFrom(tuple.Src.Addr(), uint16(port))
		hash, err := h.HashTuple(tuple)
		if err != nil {
			return nil, usageError{err}
		}
		if b := t.Bucket(hash); t.Worker(b) == worker {
			found = append(found, crafted{tuple.String(), fmt.Sprintf("%08x", hash), b, worker})
		}
	}
	if len(found) < count {
		return nil, fmt.Errorf("rss craft: %d of %d flows found for worker %d (choose another flow: is its source port hashed, has the worker buckets?)",
			len(found), count, worker)
	}
	return found, nil
}
