package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Writable says before a long run whether WriteFile could write there. It leaves no trace.
func Writable(path string) error {
	t, err := begin(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return t.giveUp()
}

// WriteFile writes a file whole or not at all. What isn't a regular file, as /dev/stdout or a pipe, is written as it is.
func WriteFile(path string, write func(io.Writer) error) error {
	t, err := begin(path)
	if err == nil {
		if err = write(t); err == nil {
			err = t.finish()
		} else {
			err = errors.Join(err, t.giveUp())
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// target is a file that gets its name when it's whole.
type target struct {
	*os.File
	name string // empty: it has it already
}

// begin opens what is to become path. Errors leave the name of the temporary file out.
func begin(path string) (target, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return target{File: f}, cause(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".epair-*")
	return target{f, path}, cause(err)
}

// cause is an error without the path that it's about.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (t target) finish() error {
	if t.name == "" {
		return t.Close()
	}
	err := errors.Join(t.Chmod(0o644), t.Close())
	if err == nil {
		err = os.Rename(t.Name(), t.name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(t.Name()))
	}
	return err
}

func (t target) giveUp() error {
	err := t.Close()
	if t.name != "" {
		err = errors.Join(err, os.Remove(t.Name()))
	}
	return err
}
