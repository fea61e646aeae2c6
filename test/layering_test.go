package test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/epair-net/epair/"

// allowed says what each part may import of ours. A part is named by its folder;
// the longest name that fits a package counts.
var allowed = map[string][]string{
	"rss":         {"rss"},
	"epair":       {"internal"},
	"fanout":      {"fanout", "rss", "internal"},
	"fanout/port": {"fanout/port", "internal"},
	"internal":    {"internal"},
	"control":     {"control", "epair", "fanout", "rss", "internal"},
	"bench":       {"bench", "control", "epair", "fanout", "rss", "internal"},
	"cmd":         {"bench", "control", "epair", "fanout", "rss", "internal"},
	"test":        {"bench", "cmd", "control", "epair", "fanout", "rss", "internal"},
	"fanout/bpf":  {"rss", "internal"},
}

// The pool must know ports by their interface only: what joins the halves lies
// in control and above.
func TestLayering(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for seen := 0; ; seen++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			if seen < 10 {
				t.Fatalf("saw only %d packages", seen)
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		may, ok := rule(name)
		if !ok {
			t.Errorf("%s: no rule for it", name)
		}
		for _, imp := range p.Imports {
			if of, ours := strings.CutPrefix(imp, module); ours && !covers(may, of) {
				t.Errorf("%s must not import %s", name, of)
			}
			if name == "fanout" && strings.HasPrefix(imp, module+"fanout/port/") {
				t.Errorf("%s knows a kind of port: %s", name, imp)
			}
		}
	}
}

func rule(name string) (may []string, ok bool) {
	best := -1
	for part, list := range allowed {
		if (name == part || strings.HasPrefix(name, part+"/")) && len(part) > best {
			best, may = len(part), list
		}
	}
	return may, best >= 0
}

func covers(may []string, name string) bool {
	for _, m := range may {
		if name == m || strings.HasPrefix(name, m+"/") {
			return true
		}
	}
	return false
}
