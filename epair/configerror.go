package epair

import (
	"errors"
	"fmt"
	"strings"
)

// fieldError says what is wrong with one value of a configuration.
type fieldError struct {
	line int    // 0: not from a file
	path string // "pairs[0].a.name"; empty: the text as such
	msg  string
}

func (e *fieldError) Error() string {
	var b strings.Builder
	if e.line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.line)
	}
	if e.path != "" {
		b.WriteString(e.path + ": ")
	}
	b.WriteString(e.msg)
	return b.String()
}

// Is makes it an ErrConfig.
func (e *fieldError) Is(target error) bool { return target == ErrConfig }

// wrong makes a fieldError. Values are quoted by %q, so it stays one line.
func wrong(path, format string, args ...any) error {
	return &fieldError{path: path, msg: fmt.Sprintf(format, args...)}
}

// lines knows where each key of a file stands.
type lines map[string]int

// locate adds the line to an error: that of the key, or of what should contain it.
func (l lines) locate(err error) error {
	var f *fieldError
	if !errors.As(err, &f) || f.line > 0 {
		return err
	}
	for path := f.path; ; {
		if n, ok := l[path]; ok {
			f.line = n
			return err
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return err
		}
		path = path[:i]
	}
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
