package epair

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// words fills a map of texts.
func (d *decoder) words(n ast.Node, path string, v reflect.Value) error {
	entries, err := d.entries(n, path)
	if err != nil {
		return err
	}
	m := map[string]string{}
	for _, e := range entries {
		key := e.Key.GetToken().Value
		var s string
		if err := d.value(e.Value, fmt.Sprintf("%s[%.20q]", path, key), "", reflect.ValueOf(&s).Elem()); err != nil {
			return d.lines.locate(err)
		}
		m[key] = s
	}
	v.Set(reflect.ValueOf(m))
	return nil
}

func (d *decoder) list(n ast.Node, path string, v reflect.Value) error {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return d.mismatch(n, path, "a list")
	}
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, item := range s.Values {
		if err := d.value(item, fmt.Sprintf("%s[%d]", path, i), "", out.Index(i)); err != nil {
			return d.lines.locate(err)
		}
	}
	v.Set(out)
	return nil
}

// text takes a scalar as it is written: 0123 and 1e5 are names, not numbers. With the
// option "list", [0, 1] may be written for "0,1".
func (d *decoder) text(n ast.Node, path, option string, v reflect.Value) error {
	if _, isList := n.(*ast.SequenceNode); isList && option == "list" {
		var items []string
		if err := d.list(n, path, reflect.ValueOf(&items).Elem()); err != nil {
			return err
		}
		v.SetString(strings.Join(items, ","))
		return nil
	}
	switch s := n.(type) {
	case *ast.LiteralNode:
		v.SetString(s.Value.Value)
	case *ast.StringNode:
		v.SetString(s.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.SetString(n.GetToken().Value)
	default:
		return d.mismatch(n, path, "text")
	}
	return nil
}

func (d *decoder) duration(n ast.Node, path string, v reflect.Value) error {
	t, err := time.ParseDuration(n.GetToken().Value)
	if _, isText := n.(*ast.StringNode); err != nil || !isText {
		return d.mismatch(n, path, "a time with its unit, such as 20us or 10ms")
	}
	v.SetInt(int64(t))
	return nil
}

// mismatch is the error of a wrong type.
func (d *decoder) mismatch(n ast.Node, path, want string) error {
	got := fmt.Sprintf("%.40q", n.GetToken().Value)
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		got = "keys and values"
	case ast.SequenceType:
		got = "a list"
	}
	return d.wrong(n, path, "want %s, not %s", want, got)
}
