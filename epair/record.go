package epair

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// record is what a persistent pair leaves in the run directory, as UUID.NAME.json beside UUID.lock: how the next
// process finds it, and what that must find there. It is written whole or not at all.
type record struct {
	Format int        `json:"format"`
	Pair   PairConfig `json:"pair"`  // as created, its MTU filled in
	Ready  bool       `json:"ready"` // all of it is there; if not, it is garbage
	// Of a and b: interface in the end's namespace and outer side, 0 without one.
	Inner [2]int `json:"inner"`
	Outer [2]int `json:"outer"`
	// What whoever carries the frames wants to know of it.
	Carrier json.RawMessage `json:"carrier,omitempty"`
}

// recordFormat grows when an older process's record would be misread.
const recordFormat = 1

const idLen = 36 // of a UUID

func recordName(id, pair string) string { return id + "." + pair + ".json" }

// write replaces the record. No reader sees a part of it.
func (r *record) write(dir, id string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	path := filepath.Join(dir, recordName(id, r.Pair.Name))
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// readRecord reads the record of an instance and pair. One that makes no sense isn't ready.
func readRecord(dir, id, pair string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordName(id, pair)))
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	r := &record{}
	if json.Unmarshal(data, r) != nil || r.Format != recordFormat || r.Pair.Name != pair {
		return &record{Pair: PairConfig{Name: pair}}, nil
	}
	return r, nil
}

// recordsOf lists the pairs of which an instance has records; all of them if id is "*".
func recordsOf(dir, id, pair string) (ids, pairs []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("look for records: %w", err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || len(name) <= idLen+1 || name[idLen] != '.' {
			continue
		}
		i, p := name[:idLen], name[idLen+1:]
		if _, ok := tagID(tagPrefix + i); ok && (id == "*" || id == i) && (pair == "*" || pair == p) {
			ids, pairs = append(ids, i), append(pairs, p)
		}
	}
	return ids, pairs, nil
}

// meets says whether one of the ends is where one of c is. A record that can't be read tells of no ends.
func (r *record) meets(c *PairConfig) bool {
	if !r.Ready && r.Pair.A.Name == "" {
		return true
	}
	return r.Pair.A.identity() == c.A.identity() || r.Pair.B.identity() == c.B.identity()
}

// differs tells by which key of its configuration a pair isn't the one that was recorded. Modes change while a pair lives.
func (r *record) differs(c *PairConfig) string {
	old := &r.Pair
	for _, k := range []struct {
		key  string
		same bool
	}{
		{"datapath", old.Datapath == c.Datapath}, {"mtu", old.MTU == c.MTU},
		{"a", reflect.DeepEqual(old.A, c.A)}, {"b", reflect.DeepEqual(old.B, c.B)},
	} {
		if !k.same {
			return k.key
		}
	}
	return ""
}
