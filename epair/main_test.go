package epair

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// The tests run in a process of their own with a "host" namespace and a /run that nobody else uses, so that
// what is left can be counted to the last link.
//
//	go test ──▶ this binary ──▶ this binary, EPAIR_TEST_ROLE=tests: new network and mount namespace
//	                             └▶ this binary, other roles: what a test starts to kill it
const roleVar = "EPAIR_TEST_ROLE"

// roles are what a process started by a test does instead of testing.
var roles = map[string]func() error{"hold": roleHold, "churn": roleChurn, "weak": roleWeak}

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVar); {
	case role == "" && unix.Geteuid() == 0:
		os.Exit(reexec())
	case role == "":
		os.Exit(m.Run()) // the tests that need privileges skip
	case role == "tests":
		if err := privateRun(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	default:
		if err := roles[role](); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
}

func reexec() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleVar+"=tests")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func privateRun() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

// isolated skips a test that isn't in a process of its own.
func isolated(t testing.TB) {
	t.Helper()
	if os.Getenv(roleVar) == "tests" {
		return
	}
	if os.Getenv("EPAIR_REQUIRE") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

// newEnv makes an Env and makes sure at the end that it left nothing.
func newEnv(t testing.TB, c EnvConfig) *Env {
	t.Helper()
	isolated(t)
	before, goroutines := world(t), runtime.NumGoroutine()
	env, err := NewEnv(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := env.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		same(t, before, world(t))
		waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	})
	return env
}

// world lists all that we could leave behind: links here and in named namespaces,
// names, locks, descriptors.
func world(t testing.TB) []string {
	t.Helper()
	runtime.GC() // closes what only a finalizer would
	var all []string
	refs := []string{netns.Host}
	names, _ := filepath.Glob(netns.RunDir + "/*")
	for _, n := range names {
		refs = append(refs, filepath.Base(n))
	}
	for _, ref := range refs {
		for _, l := range linksIn(t, ref) {
			all = append(all, ref+": "+l)
		}
	}
	locks, _ := filepath.Glob("/run/epair/*")
	all = append(all, locks...)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fds {
		to, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err == nil && !strings.HasPrefix(to, "/proc/") { // the directory being read
			kind, _, _ := strings.Cut(to, "[")
			all = append(all, "fd "+kind)
		}
	}
	slices.Sort(all)
	return all
}

func same(t testing.TB, before, after []string) {
	t.Helper()
	if !slices.Equal(before, after) {
		t.Errorf("not as it was:\nbefore %q\nafter  %q", before, after)
	}
}

func linksIn(t testing.TB, ref string) []string {
	t.Helper()
	var names []string
	in(t, ref, func(h *netlink.Handle) error {
		links, err := h.LinkList()
		for _, l := range links {
			names = append(names, l.Attrs().Name)
		}
		return err
	})
	return names
}

// in runs fn with a handle of a namespace.
func in(t testing.TB, ref string, fn func(*netlink.Handle) error) {
	t.Helper()
	ns, err := netns.Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := open(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := fn(h); err != nil {
		t.Fatalf("in %s: %v", ref, err)
	}
}

// link looks up a link's attributes.
func link(t testing.TB, ref, name string) *netlink.LinkAttrs {
	t.Helper()
	var a *netlink.LinkAttrs
	in(t, ref, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err == nil {
			a = l.Attrs()
		}
		return err
	})
	return a
}

// named makes a namespace that isn't epair's, for the length of the test.
func named(t testing.TB, name string) string {
	t.Helper()
	ns, err := netns.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	ns.Close()
	t.Cleanup(func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// foreignVeth makes a veth that isn't epair's, both sides in one namespace, up.
func foreignVeth(t testing.TB, ref, name, peer string) {
	t.Helper()
	in(t, ref, func(h *netlink.Handle) error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}, PeerName: peer}
		if err := h.LinkAdd(v); err != nil {
			return err
		}
		p, err := h.LinkByName(peer)
		if err != nil {
			return err
		}
		return errors.Join(h.LinkSetUp(v), h.LinkSetUp(p))
	})
	t.Cleanup(func() {
		ns, err := netns.Open(ref)
		if err != nil {
			return // gone, and the veth with it
		}
		defer ns.Close()
		h, err := open(ns)
		if err != nil {
			t.Error(err)
			return
		}
		defer h.Close()
		if l, err := h.LinkByName(name); err == nil {
			h.LinkDel(l)
		}
	})
}

// waitFor waits until ok, for the time that a loaded machine may need.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func create(t testing.TB, env *Env, c PairConfig) *Pair {
	t.Helper()
	p, err := Create(c, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func createUp(t testing.TB, env *Env, c PairConfig) *Pair {
	t.Helper()
	p := create(t, env, c)
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	return p
}

func vethPair(name, a, b string) PairConfig {
	return PairConfig{
		Name: name,
		A:    EndConfig{Kind: Veth, Name: "eth0", Netns: a},
		B:    EndConfig{Kind: Veth, Name: "eth0", Netns: b},
	}
}
