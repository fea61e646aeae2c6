package epair

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

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
