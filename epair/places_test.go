package epair

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inhabitant starts a process in a namespace without a name, and returns how to refer to that.
func inhabitant(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return fmt.Sprintf("pid:%d", cmd.Process.Pid)
}

// An interface that a crash left is found also where only a process holds the namespace.
func TestGCWhereProcessesAre(t *testing.T) {
	isolated(t)
	a, b := inhabitant(t), inhabitant(t)
	before := world(t)
	env := must(NewEnv(EnvConfig{}))
	cfg := vethPair("stray", a, b)
	cfg.Datapath = "direct"
	createUp(t, env, cfg)
	env.inst.keep = true
	if err := env.free(); err != nil { // as a crash would
		t.Fatal(err)
	}
	if found, err := Garbage(""); err != nil || !slices.Contains(found, "interface eth0 in "+a) {
		t.Errorf("found %q, %v", found, err)
	}
	if _, err := GC(""); err != nil {
		t.Error(err)
	}
	for _, ref := range []string{a, b} {
		if links := linksIn(t, ref); len(links) != 1 {
			t.Errorf("left in %s: %q", ref, links)
		}
	}
	same(t, before, world(t))
}

// A persistent pair there stays until all are to go.
func TestPersistWhereProcessesAre(t *testing.T) {
	isolated(t)
	a, b := inhabitant(t), inhabitant(t)
	before := world(t)
	env := must(NewEnv(EnvConfig{}))
	cfg := vethPair("stays", a, b)
	cfg.Datapath, cfg.Persist = "direct", true
	p := createUp(t, env, cfg)
	if err := p.Keep(); err != nil {
		t.Fatal(err)
	}
	if err := env.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		if l, err := Sweep("", dry, false); err != nil || len(l.Garbage) > 0 || len(l.Kept) != 1 || !strings.Contains(l.Kept[0], "stays") {
			t.Errorf("dry %v: %+v, %v", dry, l, err)
		}
	}
	if links := linksIn(t, a); len(links) != 2 {
		t.Errorf("in %s: %q", a, links)
	}
	if l, err := Sweep("", false, true); err != nil || len(l.Garbage) == 0 || len(l.Kept) > 0 {
		t.Errorf("all: %+v, %v", l, err)
	}
	for _, ref := range []string{a, b} {
		if links := linksIn(t, ref); len(links) != 1 {
			t.Errorf("left in %s: %q", ref, links)
		}
	}
	same(t, before, world(t))
}
