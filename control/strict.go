package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// The JSON of requests is read strictly: unknown keys, keys in another case, keys that are there
// twice, wrong types, null and anything behind the end are errors of one line that name the path and what
// would be right. encoding/json lets most of that pass.

// maxDepth is how deep values may be nested: twice as deep as any request.
const maxDepth = 16

// decodeStrict fills *into from one JSON value. Its errors are ErrRequest.
func decodeStrict(data []byte, into any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%w: the body is empty (want a JSON object)", ErrRequest)
	}
	d := &strictDecoder{json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	if err := d.value("", reflect.ValueOf(into).Elem(), maxDepth); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the JSON value (send one)", ErrRequest)
	}
	return nil
}

type strictDecoder struct{ *json.Decoder }

// next returns the next token. Syntax errors come with their place.
func (d *strictDecoder) next() (json.Token, error) {
	t, err := d.Token()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("byte %d: the JSON ends too early", d.InputOffset())
	case err != nil:
		return nil, fmt.Errorf("byte %d: %w", d.InputOffset(), err)
	}
	return t, nil
}

// value reads one value into v.
func (d *strictDecoder) value(path string, v reflect.Value, depth int) error {
	t, err := d.next()
	if err != nil {
		return err
	}
	for v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if depth == 0 {
		return at(path, "nested too deep")
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.object(t, path, "an object", func(key string) error { return d.field(key, path, v, depth-1) })
	case reflect.Map:
		return d.words(t, path, v, depth-1)
	case reflect.Slice:
		return d.list(t, path, v, depth-1)
	}
	return scalar(t, path, v)
}

// scalar stores a text, a number or a truth value.
func scalar(t json.Token, path string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if s, ok := t.(string); ok {
			v.SetString(s)
			return nil
		}
		return mismatch(path, "a text", t)
	case reflect.Bool:
		if b, ok := t.(bool); ok {
			v.SetBool(b)
			return nil
		}
		return mismatch(path, "true or false", t)
	}
	n, ok := t.(json.Number)
	if !ok {
		return mismatch(path, "a whole number", t)
	}
	i, err := strconv.ParseInt(n.String(), 10, v.Type().Bits())
	if err != nil {
		return mismatch(path, "a whole number", t)
	}
	v.SetInt(i)
	return nil
}

// object calls f for each key; f reads the value.
func (d *strictDecoder) object(t json.Token, path, want string, f func(key string) error) error {
	if t != json.Delim('{') {
		return mismatch(path, want, t)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.next()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return mismatch(path, "a key", t)
		}
		if seen[key] {
			return at(path, "key %.40q is there twice", key)
		}
		seen[key] = true
		if err := f(key); err != nil {
			return err
		}
	}
	_, err := d.next()
	return err
}

func (d *strictDecoder) field(key, path string, v reflect.Value, depth int) error {
	var known []string
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == key {
			return d.value(joinPath(path, key), v.Field(i), depth)
		}
		known = append(known, name)
	}
	return at(path, "unknown key %.40q (known keys: %s)", key, strings.Join(known, ", "))
}

// words fills a map of texts.
func (d *strictDecoder) words(t json.Token, path string, v reflect.Value, depth int) error {
	m := map[string]string{}
	err := d.object(t, path, "an object of texts", func(key string) error {
		var s string
		err := d.value(joinPath(path, fmt.Sprintf("%.20q", key)), reflect.ValueOf(&s).Elem(), depth)
		m[key] = s
		return err
	})
	v.Set(reflect.ValueOf(m))
	return err
}

func (d *strictDecoder) list(t json.Token, path string, v reflect.Value, depth int) error {
	if t != json.Delim('[') {
		return mismatch(path, "a list", t)
	}
	for i := 0; d.More(); i++ {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(fmt.Sprintf("%s[%d]", path, i), item, depth); err != nil {
			return err
		}
		v.Set(reflect.Append(v, item))
	}
	_, err := d.next()
	return err
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// at makes an error that names the path.
func at(path, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if path == "" {
		return errors.New(msg)
	}
	return fmt.Errorf("%s: %s", path, msg)
}

func mismatch(path, want string, got json.Token) error {
	switch t := got.(type) {
	case nil:
		return at(path, "has no value (leave the key out)")
	case json.Delim:
		kind := map[json.Delim]string{'{': "an object", '[': "a list"}[t]
		return at(path, "want %s, not %s", want, kind)
	case string:
		return at(path, "want %s, not %.40q", want, t)
	}
	return at(path, "want %s, not %.40v", want, got)
}
