package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const goodPair = `{"name":"x","a":{"kind":"veth","name":"e","netns":"n"},"b":{"kind":"veth","name":"e","netns":"m"}}`

func TestStrict(t *testing.T) {
	for _, c := range []struct {
		name, body string
		into       any
		want       string // of the error; empty: none
	}{
		{"good", `{"pairs":[` + goodPair + `]}`, &Adding{}, ""},
		{"empty", "", &Adding{}, "empty"},
		{"blanks", " \n\t ", &Adding{}, "empty"},
		{"no object", `[]`, &Adding{}, "want an object, not a list"},
		{"null", `null`, &Adding{}, "no value"},
		{"null inside", `{"pairs":null}`, &Adding{}, "pairs: has no value"},
		{"unknown key", `{"pair":[]}`, &Adding{}, `unknown key "pair" (known keys: pairs)`},
		{"another case", `{"Pairs":[]}`, &Adding{}, `unknown key "Pairs"`},
		{"deep", `{"pairs":[{"name":"x","a":{"knid":"veth"}}]}`, &Adding{}, `pairs[0].a: unknown key "knid"`},
		{"twice", `{"mode":"pool","mode":"inline"}`, &PairChange{}, `"mode" is there twice`},
		{"wrong type", `{"mode":1}`, &PairChange{}, `mode: want a text, not 1`},
		{"list for text", `{"mode":["pool"]}`, &PairChange{}, `mode: want a text, not a list`},
		{"text for list", `{"pairs":"x"}`, &Adding{}, `pairs: want a list`},
		{"float", `{"pairs":[{"mtu":1500.5}]}`, &Adding{}, `pairs[0].mtu: want a whole number, not 1500.5`},
		{"exponent", `{"pairs":[{"mtu":1e3}]}`, &Adding{}, `want a whole number`},
		{"too large", `{"pairs":[{"mtu":99999999999999999999}]}`, &Adding{}, `want a whole number`},
		{"text for bool", `{"symmetric":"true"}`, &RSSChange{}, `symmetric: want true or false, not "true"`},
		{"text for number", `{"pairs":[{"poller":{"spin":"20us"}}]}`, &Adding{}, `pairs[0].poller.spin: want a whole number`},
		{"fields", `{"fields":{"udp4":"sd"}}`, &RSSChange{}, ""},
		{"fields type", `{"fields":{"udp4":1}}`, &RSSChange{}, `fields."udp4": want a text`},
		{"trailing", `{"mode":"pool"} {}`, &PairChange{}, "follows"},
		{"trailing brace", `{"mode":"pool"}}`, &PairChange{}, "follows"},
		{"cut off", `{"mode":"po`, &PairChange{}, "ends too early"},
		{"open", `{"mode":"pool"`, &PairChange{}, "ends too early"},
		{"not JSON", `mode=pool`, &PairChange{}, "byte "},
		{"no comma", `{"mode":"pool" "datapath":"tc"}`, &PairChange{}, "byte "},
	} {
		err := decodeStrict([]byte(c.body), c.into)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v doesn't say %q", c.name, err, c.want)
		case err != nil && (!errors.Is(err, ErrRequest) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v isn't an ErrRequest of one line", c.name, err)
		}
	}
}

// What is taken, encoding/json takes too, and makes the same of it.
func FuzzStrict(f *testing.F) {
	f.Add([]byte(`{"pairs":[` + goodPair + `]}`))
	f.Add([]byte(`{"pairs":[{"poller":{"spin":1},"mtu":-1,"a":{"addresses":["x","\u00e9"]}}]}`))
	f.Add([]byte(`{"pairs":[{"name":{},"name":[]}]}`))
	f.Add([]byte(`{"pairs":[[[[[[[[[[[[[[[[[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want Adding
		err := decodeStrict(data, &got)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
			return
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("taken, but %v", err)
		}
		if len(got.Pairs) != len(want.Pairs) || len(got.Pairs) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// What makes no sense is refused by every route, and nothing is changed.
func TestRefusedRequests(t *testing.T) {
	s := serveDaemon(t)
	long := `{"pairs":[` + strings.Repeat(" ", maxBody) + `]}`
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/pairs", "", 400, "empty"},
		{"POST", "/v1/pairs", `{}`, 400, "at least one"},
		{"POST", "/v1/pairs", `{"pairs":[]}`, 400, "at least one"},
		{"POST", "/v1/pairs", `{"pairs":[{"name":"x"}]}`, 400, "pairs[0].a.kind"},
		{"POST", "/v1/pairs", `{"pairs":[` + goodPair + "," + goodPair + `]}`, 400, "pairs[1].name"},
		{"POST", "/v1/pairs", long, 413, "too long"},
		{"DELETE", "/v1/pairs", "", 400, "none is named"},
		{"DELETE", "/v1/pairs/none", "", 404, "none"},
		{"GET", "/v1/pairs/none", "", 404, "none"},
		{"GET", "/v1/pairs/%00%ff", "", 404, "no such pair"},
		{"PATCH", "/v1/pairs/none", `{"mode":"pool"}`, 404, "none"},
		{"PATCH", "/v1/rss", `{}`, 400, "nothing to change"},
		{"PATCH", "/v1/rss", `{"table":"equal 99"}`, 400, "equal 99"},
		{"PATCH", "/v1/rss", `{"key":"zz"}`, 400, "key"},
		{"PATCH", "/v1/rss", `{"fields":{"udp5":"sd"}}`, 400, "udp5"},
		{"PATCH", "/v1/pool", `{"cpus":""}`, 400, "cpus"},
		{"PATCH", "/v1/pool", `{"cpus":"x"}`, 400, "cpus"},
		{"PATCH", "/v1/pool", `{"cpus":"1023,1023"}`, 400, "1023"},
		{"POST", "/v1/rss/rebalance", `{"dry":true}`, 400, "unknown key"},
		{"PUT", "/v1/pairs", "", 405, "Method Not Allowed"},
		{"GET", "/v2/pairs", "", 404, "Not Found"},
		{"GET", "/", "", 404, "Not Found"},
		{"GET", "//v1//pairs", "", 404, "Not Found"},
		{"GET", "/v1/pairs/a%0ab", "", 404, `pair "a\nb": no such pair`},
		{"DELETE", "/v1/pairs?name=", "", 404, `pair "": no such pair`},
	} {
		status, text := s.do(t, c.method, c.path, strings.NewReader(c.body))
		refused(t, status, text, c.status, c.want)
		if t.Failed() {
			t.Fatalf("%s %s %.60s", c.method, c.path, c.body)
		}
	}
	if changes := s.Daemon.Pool().Fence.Changes; changes > 0 || len(s.Daemon.Pairs()) > 0 {
		t.Errorf("%d changes, %d pairs", changes, len(s.Daemon.Pairs()))
	}
}

// The file that describes the API is served as it is.
func TestServesOpenAPI(t *testing.T) {
	s := serveDaemon(t)
	if status, text := s.do(t, http.MethodGet, "/v1/openapi.yaml", nil); status != 200 || text != string(openAPI) {
		t.Errorf("status %d, %d bytes", status, len(text))
	}
}
