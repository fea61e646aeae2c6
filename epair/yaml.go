package epair

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The YAML decoder fills a Config from the syntax tree. It is strict: unknown
// keys, wrong types, empty values and repeated keys are errors that name the
// line, the whole path and what would be right.

// maxConfig is the longest configuration in bytes: 500 pairs take some 100 KiB.
const maxConfig = 4 << 20

// decode fills c from YAML and returns where each key was.
func decode(data []byte, c *Config) (lines, error) {
	if len(data) > maxConfig {
		return nil, wrong("", "longer than %d bytes", maxConfig)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	d := decoder{lines: lines{}, anchors: map[string]ast.Node{}}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, d.wrong(doc.Body, "", "a second document (write one)")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, wrong("", "it is empty (start with version: %s)", Version)
	}
	return d.lines, d.value(body, "", "", reflect.ValueOf(c).Elem())
}

// syntaxError makes one line of what the parser says on many.
func syntaxError(err error) error {
	var y yaml.Error
	if !errors.As(err, &y) {
		msg, _, _ := strings.Cut(err.Error(), "\n")
		return wrong("", "%s", msg)
	}
	msg, _, _ := strings.Cut(y.GetMessage(), "\n")
	return &fieldError{line: lineOf(y.GetToken()), msg: msg}
}

func lineOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}

type decoder struct {
	lines   lines
	anchors map[string]ast.Node
}

func (d *decoder) wrong(n ast.Node, path, format string, args ...any) error {
	return &fieldError{line: lineOf(n.GetToken()), path: path, msg: fmt.Sprintf(format, args...)}
}

// value stores a node into v. option is the word after the key in v's yaml tag.
func (d *decoder) value(n ast.Node, path, option string, v reflect.Value) error {
	n, err := d.resolve(n, path)
	if err != nil {
		return err
	}
	if _, seen := d.lines[path]; !seen {
		d.lines[path] = lineOf(n.GetToken())
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return d.duration(n, path, v)
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(n, path, option, v.Elem())
	case reflect.Struct:
		return d.fields(n, path, v)
	case reflect.Map:
		return d.words(n, path, v)
	case reflect.Slice:
		return d.list(n, path, v)
	case reflect.String:
		return d.text(n, path, option, v)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return d.mismatch(n, path, "true or false")
		}
		v.SetBool(b.Value)
	default:
		i, err := strconv.Atoi(n.GetToken().Value)
		if err != nil || n.Type() != ast.IntegerType {
			return d.mismatch(n, path, "a number")
		}
		v.SetInt(int64(i))
	}
	return nil
}

// resolve returns what an anchor, alias or tag stands for.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, error) {
	for range 8 { // an alias to an alias to …
		switch t := n.(type) {
		case *ast.AnchorNode:
			d.anchors[t.Name.GetToken().Value] = t.Value
			n = t.Value
		case *ast.AliasNode:
			name := t.Value.GetToken().Value
			target, ok := d.anchors[name]
			if !ok {
				return nil, d.wrong(n, path, "no anchor %q before it", name)
			}
			n = target
		case *ast.TagNode:
			return nil, d.wrong(n, path, "tag %.20q isn't supported (leave it out)", t.Start.Value)
		case *ast.NullNode:
			return nil, d.wrong(n, path, "has no value (leave the key out for the default)")
		case nil:
			return nil, wrong(path, "has no value (leave the key out for the default)")
		default:
			return n, nil
		}
	}
	return nil, d.wrong(n, path, "too many aliases")
}

// entries returns the keys and values of a mapping.
func (d *decoder) entries(n ast.Node, path string) ([]*ast.MappingValueNode, error) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, nil
	}
	return nil, d.mismatch(n, path, "keys and values")
}

func (d *decoder) fields(n ast.Node, path string, v reflect.Value) error {
	entries, err := d.entries(n, path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		key := e.Key.GetToken().Value
		i, option, known := field(v.Type(), key)
		if i < 0 {
			in := ""
			if path != "" {
				in = " in " + path
			}
			return d.wrong(e.Key, "", "unknown key %.40q%s (known keys: %s)", key, in, strings.Join(known, ", "))
		}
		d.lines[join(path, key)] = lineOf(e.Key.GetToken())
		if err := d.value(e.Value, join(path, key), option, v.Field(i)); err != nil {
			return d.lines.locate(err)
		}
	}
	return nil
}

// field returns the number of the field that a key fills, or -1, and all keys.
func field(t reflect.Type, key string) (i int, option string, known []string) {
	i = -1
	for j := range t.NumField() {
		name, opt, _ := strings.Cut(t.Field(j).Tag.Get("yaml"), ",")
		known = append(known, name)
		if name == key {
			i, option = j, opt
		}
	}
	return i, option, known
}
