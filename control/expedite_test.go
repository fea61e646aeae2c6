package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// settings is an expediter whose files are a test's.
func settings(t *testing.T, now string) (e *expediter, read func() string) {
	dir := t.TempDir()
	e = &expediter{knob: filepath.Join(dir, "knob"), note: filepath.Join(dir, "note"), on: true}
	if err := os.WriteFile(e.knob, []byte(now+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return e, func() string {
		text, err := os.ReadFile(e.knob)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
}

func begin(t *testing.T, e *expediter, n int) func() {
	t.Helper()
	end, err := e.begin(n)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpedite(t *testing.T) {
	e, now := settings(t, "0")
	few := begin(t, e, hurryFrom-1)
	if now() != "0" {
		t.Error("a few pairs hurry the machine")
	}
	few()
	first, second := begin(t, e, hurryFrom), begin(t, e, 500)
	first()
	if now() != "1" {
		t.Error("it doesn't hurry while a change is under way")
	}
	second()
	if _, err := os.Stat(e.note); now() != "0" || err == nil {
		t.Errorf("it isn't as it was: %s, %v", now(), err)
	}
	e.on = false
	defer begin(t, e, 500)()
	if now() != "0" {
		t.Error("nobody has asked for it")
	}
}

// What the machine's owner has set stays.
func TestExpeditedAlready(t *testing.T) {
	e, now := settings(t, "1")
	begin(t, e, 500)()
	if now() != "1" {
		t.Errorf("it is %s", now())
	}
}

// A daemon that starts puts back what a crash left, unless another is at it.
func TestExpediteAfterCrash(t *testing.T) {
	e, now := settings(t, "0")
	end := begin(t, e, 500)
	other := &expediter{knob: e.knob, note: e.note, on: true}
	if err := other.recover(); err != nil || now() != "1" {
		t.Errorf("%v, it is %s while a change is under way", err, now())
	}
	begin(t, other, 500)()
	if now() != "1" {
		t.Error("another daemon's change ended this one's")
	}
	e.held.Close() // as the kernel does when a process dies
	if err := other.recover(); err != nil || now() != "0" {
		t.Errorf("%v, it is %s after the crash", err, now())
	}
	if err := other.recover(); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
	_ = end // of the one that crashed
}
