package control

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	yaml "github.com/goccy/go-yaml"

	"github.com/epair-net/epair/epair"
)

// schema is what the tests look at of an OpenAPI schema.
type schema struct {
	Ref        string            `yaml:"$ref"`
	Type       string            `yaml:"type"`
	Enum       []string          `yaml:"enum"`
	Items      *schema           `yaml:"items"`
	Properties map[string]schema `yaml:"properties"`
	Required   []string          `yaml:"required"`
	Additional any               `yaml:"additionalProperties"`
}

type content struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct {
		Schema schema `yaml:"schema"`
	} `yaml:"content"`
}

type document struct {
	OpenAPI    string                    `yaml:"openapi"`
	Paths      map[string]map[string]any `yaml:"paths"`
	Components struct {
		Responses     map[string]content `yaml:"responses"`
		RequestBodies map[string]content `yaml:"requestBodies"`
		Schemas       map[string]schema  `yaml:"schemas"`
	} `yaml:"components"`
}

func loadOpenAPI(t *testing.T) (d document) {
	t.Helper()
	if err := yaml.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Fatalf("openapi: %q", d.OpenAPI)
	}
	return d
}

// Every route is in openapi.yaml and the other way round.
func TestOpenAPIRoutes(t *testing.T) {
	d := loadOpenAPI(t)
	got := []string{"GET /v1/openapi.yaml", "GET /metrics"}
	for _, r := range (*Daemon)(nil).routes() {
		got = append(got, r.method+" "+r.path)
	}
	var want []string
	for path, ops := range d.Paths {
		for method := range ops {
			if method != "parameters" {
				want = append(want, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the daemon answers\n%s\nopenapi.yaml says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every key of every type that is sent or taken is in openapi.yaml, with its type, and the other way round.
func TestOpenAPITypes(t *testing.T) {
	d := loadOpenAPI(t)
	requests := []any{Adding{}, PairChange{}, RSSChange{}, Rebalancing{}, PoolChange{}}
	answers := []any{
		Pairs{}, Pair{}, Removed{}, Changed{}, RSS{}, RSSChanged{}, Loads{}, Rebalanced{}, Pool{}, PoolChanged{}, Stat{}, Audit{}, Garbage{}, Version{}, Failure{},
	}
	c := checker{t: t, d: &d, seen: map[string]bool{}}
	for _, v := range requests {
		c.named(reflect.TypeOf(v), true)
	}
	for _, v := range answers {
		c.named(reflect.TypeOf(v), false)
	}
	for name := range d.Components.Schemas {
		if !c.seen[name] {
			t.Errorf("openapi.yaml: schema %s is no type of the API", name)
		}
	}
	bodies := func(what string, got map[string]content, want []any) {
		names := map[string]bool{}
		for _, v := range want {
			names[reflect.TypeOf(v).Name()] = true
		}
		if !maps.Equal(names, keys(got)) {
			t.Errorf("openapi.yaml: %s are %v, the API has %v", what, keys(got), names)
		}
		for name, c := range got {
			if ref := c.Content["application/json"].Schema.Ref; ref != "#/components/schemas/"+name {
				t.Errorf("openapi.yaml: %s %s has schema %q", what, name, ref)
			}
		}
	}
	bodies("requestBodies", d.Components.RequestBodies, requests)
	bodies("responses", d.Components.Responses, answers)
}

func keys[V any](m map[string]V) map[string]bool {
	k := map[string]bool{}
	for name := range m {
		k[name] = true
	}
	return k
}

// checker compares types with schemas.
type checker struct {
	t    *testing.T
	d    *document
	seen map[string]bool
}

// named compares a struct with the schema of its name.
func (c *checker) named(t reflect.Type, request bool) {
	if c.seen[t.Name()] {
		return
	}
	c.seen[t.Name()] = true
	s, ok := c.d.Components.Schemas[t.Name()]
	if !ok {
		c.t.Errorf("openapi.yaml: no schema %s", t.Name())
		return
	}
	if strict := s.Additional == false; strict != request {
		c.t.Errorf("openapi.yaml: %s: additionalProperties: false is %t; requests are strict, answers aren't", t.Name(), strict)
	}
	known := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" {
			c.t.Errorf("%s.%s has no JSON key", t.Name(), f.Name)
			continue
		}
		known[key] = true
		p, ok := s.Properties[key]
		if !ok {
			c.t.Errorf("openapi.yaml: %s: add %q (%s)", t.Name(), key, f.Type)
			continue
		}
		if required := slices.Contains(s.Required, key); required == (options != "") {
			c.t.Errorf("openapi.yaml: %s: %s: required is %t, the tag is %q", t.Name(), key, required, f.Tag.Get("json"))
		}
		c.value(fmt.Sprintf("%s.%s", t.Name(), key), f.Type, &p, request)
	}
	for key := range s.Properties {
		if !known[key] {
			c.t.Errorf("openapi.yaml: %s: the type has no key %q", t.Name(), key)
		}
	}
}

// value compares the type of one value with its schema.
func (c *checker) value(path string, t reflect.Type, s *schema, request bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Map: "object",
		reflect.Int: "integer", reflect.Int64: "integer", reflect.Uint64: "integer", reflect.Float64: "number",
	}[t.Kind()]
	got := s.Type
	if s.Enum != nil {
		got = "string"
	}
	switch t.Kind() {
	case reflect.Struct:
		want, got = "#/components/schemas/"+t.Name(), s.Ref
		c.named(t, request)
	case reflect.Slice:
		if s.Items == nil {
			c.t.Errorf("openapi.yaml: %s has no items", path)
			return
		}
		c.value(path+"[]", t.Elem(), s.Items, request)
	}
	if got != want {
		c.t.Errorf("openapi.yaml: %s is %q, the type has %q", path, got, want)
	}
}

// What openapi.yaml lists as values is what the configuration takes.
func TestOpenAPIEnums(t *testing.T) {
	d := loadOpenAPI(t)
	end := epair.EndConfig{Kind: epair.Veth, Name: "x", Netns: "n"}
	other := epair.EndConfig{Kind: epair.Veth, Name: "y", Netns: "n"}
	for _, key := range []string{"datapath", "mode", "port"} {
		values := d.Components.Schemas["PairConfig"].Properties[key].Enum
		if len(values) < 2 {
			t.Errorf("PairConfig.%s has values %v", key, values)
		}
		for _, v := range append(values, "x"+values[0]) {
			c := epair.PairConfig{Name: "p", A: end, B: other}
			reflect.ValueOf(&c).Elem().FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, key) }).SetString(v)
			if err := c.Check(); (err == nil) != slices.Contains(values, v) {
				t.Errorf("%s %s: %v", key, v, err)
			}
		}
	}
}

// docs/api.md names every route, and every metric the part of its name that tells it from the others.
func TestAPIDoc(t *testing.T) {
	data, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, r := range (*Daemon)(nil).routes() {
		if path := strings.ReplaceAll(r.path, "{name}", "NAME"); !strings.Contains(text, "`"+r.method+" "+path) {
			t.Errorf("docs/api.md doesn't name %s %s", r.method, path)
		}
	}
	for name := range newMetricSet().all() {
		name = strings.TrimPrefix(name, "epair_")
		short := strings.TrimPrefix(strings.TrimPrefix(name, "worker"), "fence")
		if name != "build_info" && !strings.Contains(text, "epair_"+name) && !strings.Contains(text, "…"+short) {
			t.Errorf("docs/api.md doesn't name epair_%s", name)
		}
	}
}
