package bpf

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/rss"
)

// needBPF skips a test where BPF isn't allowed, and fails it where everything is required.
func needBPF(t testing.TB) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil && os.Geteuid() == 0 {
		m.Close()
		return
	}
	if os.Getenv("EPAIR_REQUIRE") == "1" {
		t.Fatalf("needs root and bpf: %v", err)
	}
	t.Skipf("needs root and bpf: %v", err)
}

func mustHasher(t testing.TB, cfg rss.Config) *rss.Hasher {
	t.Helper()
	h, err := rss.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustTable(t testing.TB, spec string, size, workers int) *rss.Table {
	t.Helper()
	table, err := rss.ParseTable(spec, size, workers)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// randomTable returns a table of that size over several workers.
func randomTable(t testing.TB, r *rand.Rand, size int) *rss.Table {
	list := make([]string, size)
	for i := range list {
		list[i] = strconv.Itoa(r.IntN(200))
	}
	return mustTable(t, strings.Join(list, ","), size, 200)
}

func mustRSS(t testing.TB, h *rss.Hasher, table *rss.Table) *RSS {
	t.Helper()
	needBPF(t)
	r, err := NewRSS(h, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// mustCheck loads the test programs on r's maps.
func mustCheck(t testing.TB, r *RSS) *checkObjects {
	t.Helper()
	o, err := loadChecks(r)
	if ve := (*ebpf.VerifierError)(nil); errors.As(err, &ve) {
		t.Fatalf("%+v", ve)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func loadChecks(r *RSS) (*checkObjects, error) {
	o := new(checkObjects)
	return o, loadCheckObjects(o, &ebpf.CollectionOptions{MapReplacements: r.Maps(nil)})
}

// configs returns every combination of the settings, with random keys and field sets.
func configs(r *rand.Rand) (all []rss.Config) {
	for _, fn := range []string{"toeplitz", "xxhash"} {
		keys := []string{"default", "symmetric", randomKey(r)}
		if fn == "xxhash" {
			keys = []string{""}
		}
		for _, key := range keys {
			for i := range 4 {
				c := rss.Config{Func: fn, Key: key, Symmetric: i&1 != 0, Inner: i&2 != 0}
				for _, fields := range []map[string]string{nil, addressesOnly(), randomFields(r, c.Symmetric), randomFields(r, c.Symmetric)} {
					c.Fields = fields
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func randomKey(r *rand.Rand) string {
	key := make([]byte, 40+r.IntN(13))
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	return hex.EncodeToString(key)
}

var (
	withPorts    = []string{"tcp4", "tcp6", "udp4", "udp6", "sctp4", "sctp6"}
	withoutPorts = []string{"ip4", "ip6"}
)

func addressesOnly() map[string]string {
	m := map[string]string{}
	for _, typ := range withPorts {
		m[typ] = "sd"
	}
	return m
}

func randomFields(r *rand.Rand, symmetric bool) map[string]string {
	m := map[string]string{}
	for _, typ := range withPorts {
		m[typ] = subset(r, "s", "d", "f", "n")
		if symmetric {
			m[typ] = subset(r, "sd", "fn")
		}
	}
	for _, typ := range withoutPorts {
		m[typ] = subset(r, "s", "d")
		if symmetric {
			m[typ] = "sd"
		}
	}
	return m
}

// subset joins some of the words, one at least.
func subset(r *rand.Rand, words ...string) string {
	n := 1 + r.IntN(1<<len(words)-1)
	s := ""
	for i, w := range words {
		if n&(1<<i) != 0 {
			s += w
		}
	}
	return s
}

// check compares a program's answer for a frame with rss's.
func check(h *rss.Hasher, table *rss.Table, frame []byte, got class) error {
	hash := h.Hash(frame)
	bucket := table.Bucket(hash)
	want := class{hash, uint32(bucket), uint32(table.Worker(bucket))}
	if got == want {
		return nil
	}
	return fmt.Errorf("bpf says %+v, rss %+v\nframe %x\nkey %s\nrss: %+v\nconfig %+v", got, want, frame, h.Explain(frame).Bytes, h.Explain(frame), h.Config())
}
