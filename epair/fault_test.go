package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

var errInjected = errors.New("injected")

// Whichever step of Create or Up fails, nothing is left, and the same pair can be made afterwards.
func TestEveryStepFails(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	foreignVeth(t, "host", "fd0", "fd1")
	ends := []EndConfig{
		{Kind: Veth, Name: "eth0", Netns: "fa", Addresses: []string{"10.0.0.1/24", "fd00::1/64"}},
		{Kind: TAP, Name: "tap0", Netns: "fb", Addresses: []string{"10.0.0.2/24"}},
		{Kind: Dev, Name: "fd0"},
	}
	before := world(t)
	steps := 0
	for i, a := range ends {
		for j, b := range ends {
			if i == j {
				continue
			}
			c := PairConfig{Name: "fault", A: a, B: b}
			steps += failEach(t, env, c, before)
		}
	}
	if steps < 60 {
		t.Errorf("only %d steps failed", steps)
	}
}

// failEach lets each step of c fail in turn, and returns how many there are.
func failEach(t *testing.T, env *Env, c PairConfig, before []string) int {
	t.Helper()
	for k := 0; ; k++ {
		n, name := 0, ""
		env.fault = func(step string) error {
			if n++; n <= k {
				return nil
			}
			name = step
			return errInjected
		}
		p, err := Create(c, env)
		if err == nil {
			err = p.Up()
			if derr := p.Delete(); derr != nil {
				t.Errorf("step %d, %s: delete: %v", k, name, derr)
			}
		}
		env.fault = nil
		if err == nil {
			same(t, before, world(t))
			return k
		}
		if !errors.Is(err, errInjected) || strings.Contains(err.Error(), "\n") {
			t.Errorf("step %d, %s: %v", k, name, err)
		}
		if after := world(t); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("step %d, %s of %s and %s left something:\nbefore %q\nafter  %q", k, name, c.A, c.B, before, after)
		}
		if links, err := env.out.LinkList(); err != nil || len(links) != 1 {
			t.Errorf("step %d, %s: private namespace: %v %v", k, name, links, err)
		}
		if len(env.Pairs()) != 0 || len(env.devs) != 0 || len(env.spaces) != 0 || len(env.pairs) != 0 {
			t.Errorf("step %d, %s: env still knows %v %v %v", k, name, env.pairs, env.devs, env.spaces)
		}
	}
}

// An interface or namespace that goes away between two steps is an error as any other.
func TestObjectsVanishBetweenSteps(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	c := PairConfig{Name: "v", A: EndConfig{Kind: Veth, Name: "eth0", Netns: "wa"}, B: EndConfig{Kind: TAP, Name: "tap0", Netns: "wb"}}
	before := world(t)
	for _, ns := range []string{"wa", "wb"} {
		for k := range 20 {
			n := 0
			env.fault = func(string) error {
				if n++; n == k {
					return netns.Delete(ns)
				}
				return nil
			}
			p, err := Create(c, env)
			if err == nil {
				_ = p.Up() // with or without the namespace's name: an error, or an end that is gone soon
				if err := p.Delete(); err != nil {
					t.Errorf("step %d: %v", k, err)
				}
			}
			env.fault = nil
			same(t, before, world(t))
		}
	}
}

// 200 pairs of all kinds: the same threads, and gone in one go.
func TestManyPairs(t *testing.T) {
	env := newEnv(t, EnvConfig{Queues: 2})
	createUp(t, env, tapPair("warm", "mwarm"))
	before := world(t)
	threads := countThreads(t)
	const n = 200
	var pairs []*Pair
	start := time.Now()
	for i := range n {
		c := PairConfig{Name: fmt.Sprint("m", i), A: EndConfig{Kind: Veth, Name: fmt.Sprint("v", i), Netns: "many"},
			B: EndConfig{Kind: Veth, Name: fmt.Sprint("w", i), Netns: fmt.Sprint("many", i%5)}}
		if i%4 == 0 {
			c.B.Kind = TAP
		}
		pairs = append(pairs, createUp(t, env, c))
	}
	t.Logf("created in %v", time.Since(start).Round(time.Millisecond))
	if more := countThreads(t) - threads; more > 20 {
		t.Errorf("%d threads more", more)
	}
	waitFor(t, "all to be up", func() bool {
		for _, p := range pairs {
			if p.State() != Up {
				return false
			}
		}
		return true
	})
	start = time.Now()
	if err := env.DeleteAll(pairs); err != nil {
		t.Fatal(err)
	}
	t.Logf("deleted in %v", time.Since(start).Round(time.Millisecond))
	same(t, before, world(t))
}

func countThreads(t testing.TB) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// Creation, deletion and `ip netns del` at the same time.
func TestRaceWithNamespaceDeletion(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	before := world(t)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			ns := fmt.Sprint("race", w)
			for i := range 50 {
				var vandal sync.WaitGroup
				vandal.Go(func() {
					time.Sleep(time.Duration(i*200) * time.Microsecond) // sweeps over the life of the pair
					if err := netns.Delete(ns); err != nil {
						t.Error(err)
					}
				})
				c := tapPair(fmt.Sprint("race", w), ns)
				c.B.Netns = ns
				p, err := Create(c, env)
				if err == nil {
					_ = p.Up() // may find its interfaces gone
					var second sync.WaitGroup
					second.Go(func() {
						if err := p.Delete(); err != nil {
							t.Errorf("round %d: %v", i, err)
						}
					})
					if err := p.Delete(); err != nil {
						t.Errorf("round %d: %v", i, err)
					}
					second.Wait()
				}
				vandal.Wait()
			}
		})
	}
	wg.Wait()
	same(t, before, world(t))
	if links, err := env.out.LinkList(); err != nil || len(links) != 1 {
		t.Errorf("private namespace: %v %v", links, err)
	}
}

// Close waits for what is being made, deletes it, and refuses what comes later.
func TestCloseWhileCreating(t *testing.T) {
	isolated(t)
	before := world(t)
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				p, err := Create(vethPair(fmt.Sprint("c", w, "-", i), fmt.Sprint("ca", w, "-", i), fmt.Sprint("cb", w)), env)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil && !errors.Is(err, ErrTaken) && !errors.Is(err, unix.EEXIST) {
					t.Error(err)
					return
				}
				if err == nil && i%2 == 0 {
					if err := p.Delete(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	waitFor(t, "some pairs", func() bool { return len(env.Pairs()) >= 3 })
	if err := env.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	same(t, before, world(t))
	if _, err := NewEnv(EnvConfig{Dir: "/proc/nope"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("impossible run directory: %v", err)
	}
}
