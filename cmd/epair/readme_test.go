package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fenced returns the blocks of the README that are marked as of a kind.
func fenced(t *testing.T, kind string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(m[1]))
	}
	if len(blocks) == 0 {
		t.Fatalf("the README has no %s block", kind)
	}
	return blocks
}

// typed returns the commands of the README's console blocks, without their comments.
func typed(t *testing.T) (lines []string) {
	t.Helper()
	for _, block := range fenced(t, "console") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), " #")
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// installed says whether tools are there that epair itself doesn't need.
func installed(t *testing.T, tools ...string) bool {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("EPAIR_REQUIRE") == "1" {
				t.Fatal(err)
			}
			t.Log(err)
			return false
		}
	}
	return true
}

// What the README tells a newcomer to type works, in its order: `run` goes on while the rest is typed.
func TestReadme(t *testing.T) {
	needRoot(t)
	// The newcomer's namespaces may be there on this machine.
	mine := strings.NewReplacer(
		"netns: left", fmt.Sprintf("netns: left%d", os.Getpid()), "netns: right", fmt.Sprintf("netns: right%d", os.Getpid()),
		"@left", fmt.Sprintf("@left%d", os.Getpid()), "@right", fmt.Sprintf("@right%d", os.Getpid()),
		"exec left", fmt.Sprintf("exec left%d", os.Getpid()))
	file := filepath.Join(t.TempDir(), "pair.yaml")
	if err := os.WriteFile(file, []byte(mine.Replace(fenced(t, "yaml")[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	var w *world
	ran := 0
	for _, line := range typed(t) {
		words := strings.Fields(mine.Replace(line))
		switch {
		case line == "make build": // this binary is it
		case line == "bin/epair run -f pair.yaml":
			w = startDaemon(t, "-f", file)
		case w == nil:
			t.Fatalf("%s: comes before run", line)
		case words[0] == "bin/epair":
			w.must(nil, words[1:]...)
			ran++
		default:
			if words[0] == "ip" && !installed(t, "ip", "ping") {
				continue
			}
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", line, err, out)
			}
			ran++
		}
	}
	if ran < 5 {
		t.Errorf("%d commands, which is not what the README has", ran)
	}
}
