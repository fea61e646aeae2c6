package report

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func hello(w io.Writer) error {
	_, err := io.WriteString(w, "hello")
	return err
}

func wantText(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: %q, %v", path, got, err)
	}
}

// A file is there whole or as it was, and nothing else is left beside it.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	if err := Writable(path); err != nil {
		t.Error(err)
	}
	if err := WriteFile(path, hello); err != nil {
		t.Error(err)
	}
	wantText(t, path, "hello")
	full := errors.New("full")
	if err := WriteFile(path, func(w io.Writer) error { return errors.Join(hello(w), hello(w), full) }); !errors.Is(err, full) {
		t.Error(err)
	}
	wantText(t, path, "hello")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, func(w io.Writer) error { return errors.Join(hello(w), hello(w)) }); err != nil {
		t.Error(err)
	}
	wantText(t, path, "hellohello")
	if to, err := os.Readlink(link); to != "f" {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	files, err := os.ReadDir(dir)
	if len(files) != 2 || err != nil {
		t.Errorf("%v, %v", files, err)
	}
}

// What isn't a file is written into and stays what it is.
func TestWriteIntoWhatIsNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0) // so that nobody waits for the other side
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(Writable(fifo), WriteFile(fifo, hello)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(f, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if st, err := os.Stat(fifo); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("it is %v now, %v", st, err)
	}
	for path, want := range map[string]string{"/not/there/f": "write /not/there/f: no such file or directory", t.TempDir(): "is a directory"} {
		if err := Writable(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ".epair-") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
