package epair

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

func crashPairs() []PairConfig {
	tap := PairConfig{Name: "two", A: EndConfig{Kind: TAP, Name: "tap0", Netns: "crash-theirs"}, B: EndConfig{Kind: Veth, Name: "eth1", Netns: "crash-a"}}
	return []PairConfig{vethPair("one", "crash-a", "crash-theirs"), tap}
}

// roleHold makes pairs, says so, and waits to be killed or for its input to end.
func roleHold() error {
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		return err
	}
	for _, c := range crashPairs() {
		p, err := Create(c, env)
		if err != nil {
			return err
		}
		if err := p.Up(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, env.Close())
}

// roleChurn makes and deletes pairs until it's killed.
func roleChurn() error {
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		for _, c := range crashPairs() {
			if _, err := Create(c, env); err != nil {
				return err
			}
		}
		if err := env.DeleteAll(env.Pairs()); err != nil {
			return err
		}
	}
}

// start starts this binary in a role and waits until it says that it's ready. stop ends its
// input, and waits for it.
func start(t *testing.T, role string) (cmd *exec.Cmd, stop func()) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stderr = os.Stderr
	in := must(cmd.StdinPipe())
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("%s says %q: %v", role, line, err)
	}
	return cmd, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
}

// After kill -9 only named namespaces and a lock are left. The next start adopts what it
// names, and its Close takes that along.
func TestAdoptAfterKill(t *testing.T) {
	isolated(t)
	named(t, "crash-theirs")
	before := world(t)
	victim, _ := start(t, "hold")
	kill(t, victim)
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range crashPairs() {
		p := createUp(t, env, c) // at once: the kernel may still be removing the killed process's interfaces
		if p.State() != Up {
			t.Errorf("%s is %s", p.Name(), p.State())
		}
	}
	if env.spaces["crash-a"] != 2 || env.spaces["crash-theirs"] != 0 {
		t.Errorf("owned namespaces: %v", env.spaces)
	}
	if alias := link(t, "crash-a", "lo").Alias; alias != "epair:"+env.ID() {
		t.Errorf("tag of the adopted namespace: %q", alias)
	}
	if removed, err := GC(""); err != nil || len(removed) != 0 {
		t.Errorf("what was adopted is garbage: %v %v", removed, err)
	}
	if err := env.Close(); err != nil {
		t.Error(err)
	}
	same(t, before, world(t))
}

// What nobody names again, GC removes.
func TestGCAfterKill(t *testing.T) {
	isolated(t)
	named(t, "crash-theirs")
	foreignVeth(t, "crash-theirs", "innocent", "innocent2")
	before := world(t)
	victim, _ := start(t, "hold")
	kill(t, victim)
	if err := os.WriteFile(netns.RunDir+"/stale", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(netns.RunDir + "/stale")
	removed, err := GC("")
	if err != nil || !slices.Contains(removed, "namespace crash-a") {
		t.Errorf("removed %q, %v", removed, err)
	}
	os.Remove(netns.RunDir + "/stale")
	waitFor(t, "the kernel to remove the rest", func() bool { return slices.Equal(before, world(t)) })
	if removed, err := GC(""); err != nil || len(removed) != 0 {
		t.Errorf("again: %q, %v", removed, err)
	}
}

// Killed at any moment: the next start works, and nothing is left after it.
func TestKillAtAnyMoment(t *testing.T) {
	isolated(t)
	named(t, "crash-theirs")
	before := world(t)
	for round := range 12 {
		cmd, _ := start(t, "churn")
		time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond) // anywhere in its loop
		kill(t, cmd)
		env, err := NewEnv(EnvConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range crashPairs() {
			createUp(t, env, c)
		}
		if _, err := GC(""); err != nil {
			t.Error(err)
		}
		if err := env.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		waitFor(t, "the kernel to remove the rest", func() bool { return slices.Equal(before, world(t)) })
	}
}
