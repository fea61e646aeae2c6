package fanout

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/epair-net/epair/rss"
)

func newSteering(t testing.TB, cfg rss.Config, table string, size, workers int) *Steering {
	t.Helper()
	h, err := rss.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := rss.ParseTable(table, size, workers)
	if err != nil {
		t.Fatal(err)
	}
	return NewSteering(h, tab)
}

// randomTable names a worker for each of size buckets.
func randomTable(r *rand.Rand, size, workers int) string {
	words := make([]string, size)
	for i := range words {
		words[i] = fmt.Sprint(r.IntN(workers))
	}
	return strings.Join(words, ",")
}

// hashes are what the mixed tests change between.
var hashes = []rss.Config{{}, {Func: "xxhash"}, {Symmetric: true}, {Fields: map[string]string{"udp4": "sd"}}, {Key: "symmetric"}}

// changes is how many changes a test makes, and by which dice; EPAIR_CHANGES and EPAIR_SEED make it long, and another.
func changes(t *testing.T, n int) (int, *rand.Rand) {
	t.Helper()
	seed := uint64(7)
	for name, set := range map[string]func(int){
		"EPAIR_CHANGES": func(v int) { n = v }, "EPAIR_SEED": func(v int) { seed = uint64(v) },
	} {
		if s := os.Getenv(name); s != "" {
			v, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			set(v)
		}
	}
	return n, rand.New(rand.NewPCG(uint64(n), seed))
}

// changeOnce makes one change of any kind and returns what kind it was.
func changeOnce(t *testing.T, r *rand.Rand, p *Pool, pair *Pair) (string, Change) {
	t.Helper()
	n := len(p.workers)
	kind := []string{"table", "table", "hash", "size", "mode", "mode", "mode", "cpus"}[r.IntN(8)]
	var c Change
	var err error
	switch kind {
	case "table":
		s := p.Steering()
		c, err = p.SetSteering(NewSteering(s.Hasher(), newSteering(t, rss.Config{}, randomTable(r, s.Table().Size(), n), 0, n).Table()))
	case "hash":
		c, err = p.SetSteering(newSteering(t, hashes[r.IntN(len(hashes))], "equal", 0, n))
	case "size":
		c, err = p.SetSteering(newSteering(t, rss.Config{}, "equal", []int{32, 64, 128, 512}[r.IntN(4)], n))
	case "mode":
		c, err = p.SetMode(pair, []Mode{Inline, Fanned, Polled}[r.IntN(3)])
	case "cpus":
		var set []int
		for range n {
			set = append(set, allowed(t)[r.IntN(len(allowed(t)))])
		}
		c, err = p.SetCPUs(set)
	}
	if err != nil {
		now, past, _ := p.Faults()
		t.Fatalf("change %s: %v; stuck are %+v, were %+v", kind, err, now, past)
	}
	return kind, c
}
