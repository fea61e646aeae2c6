package epair

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
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

// An orphan can survive its process when somebody else holds the private namespace or the queue's
// descriptor. Its name is made free, by Create and by GC.
func TestOrphanInterfaces(t *testing.T) {
	isolated(t)
	named(t, "crash-theirs")
	before := world(t)
	dead := "11111111-2222-4333-8444-555555555555"
	i := &instance{dir: "/run/epair"}
	orphanVeth := func(name, alias string) {
		in(t, "crash-theirs", func(h *netlink.Handle) error {
			v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}, PeerName: name + "p"}
			return errors.Join(h.LinkAdd(v), h.LinkSetAlias(v, alias))
		})
	}
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(i.path(dead), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	orphanVeth("eth0", "epair:"+dead+":one:b")
	orphanVeth("eth9", "epair:"+dead+":nine:b")
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		t.Fatal(err)
	}
	createUp(t, env, crashPairs()[0])
	if removed, err := GC(""); err != nil || !slices.Equal(removed, []string{"interface eth9 in crash-theirs"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	// Aliases that only look like tags, and tags of which nothing is known.
	for n, c := range []struct{ alias, want string }{
		{"epair:" + dead + ":one:b", "name is taken by an interface of an epair that isn't known here (choose another name or remove it)"},
		{"epair:../../etc/passwd", "name is taken by an interface that is not epair's (choose another name or remove it)"},
		{"my epair:" + env.ID(), "name is taken by an interface that is not epair's (choose another name or remove it)"},
	} {
		name := fmt.Sprint("odd", n)
		orphanVeth(name, c.alias)
		_, err := Create(PairConfig{Name: "x", A: EndConfig{Kind: Veth, Name: name, Netns: "crash-theirs"}, B: EndConfig{Kind: TAP, Name: "t", Netns: "crash-x"}}, env)
		if !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.alias, err)
		}
		in(t, "crash-theirs", func(h *netlink.Handle) error { return h.LinkDel(must(h.LinkByName(name))) })
	}
	if err := env.Close(); err != nil {
		t.Error(err)
	}
	same(t, before, world(t))
}

// Two instances at a time: neither touches what is the other's.
func TestTwoInstances(t *testing.T) {
	isolated(t)
	named(t, "crash-theirs")
	before := world(t)
	_, stop := start(t, "hold")
	with := world(t)
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Create(crashPairs()[0], env)
	want := "create pair one: create veth eth0 in crash-a: name is taken by an interface of another epair, which runs (choose another name)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	c := vethPair("mine", "crash-a", "crash-theirs")
	c.A.Name, c.B.Name = "eth7", "eth7"
	createUp(t, env, c)
	if removed, err := GC(""); err != nil || len(removed) != 0 {
		t.Errorf("collected what lives: %q %v", removed, err)
	}
	if err := env.Close(); err != nil {
		t.Error(err)
	}
	same(t, with, world(t))
	stop()
	same(t, before, world(t))
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

// roleWeak tries what it has no capability for.
func roleWeak() error {
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		return err
	}
	_, err = Create(vethPair("weak", "weak-a", "weak-b"), env)
	return errors.Join(err, env.Close())
}

func TestMissingCapabilities(t *testing.T) {
	isolated(t)
	before := world(t)
	for _, c := range []struct {
		drop uintptr
		want string
	}{
		{unix.CAP_SYS_ADMIN, "(missing CAP_SYS_ADMIN: run as root, or grant it)"},
		{unix.CAP_NET_ADMIN, "(missing CAP_NET_ADMIN: run as root, or grant it)"},
	} {
		out, err := runWithout(c.drop)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("without %d: %v", c.drop, err)
		}
		if !strings.HasPrefix(out, "error: ") || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 || strings.Count(out, "missing") != 1 {
			t.Errorf("without %d: %q, want %q", c.drop, out, c.want)
		}
		same(t, before, world(t))
	}
}

// runWithout runs the role weak without a capability: root gets what the bounding set has.
func runWithout(c uintptr) (out string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return
		}
		cmd := exec.Command("/proc/self/exe") // inherits from this thread
		cmd.Env = append(os.Environ(), roleVar+"=weak")
		var b []byte
		b, err = cmd.Output()
		out = string(b)
	}()
	<-done
	return out, err
}
