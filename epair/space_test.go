package epair

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/netns"
)

// Namespaces are shared: the last end takes what is ours with it, and nothing that isn't.
func TestSharedNamespaces(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	named(t, "theirs")
	first := create(t, env, vethPair("one", "ours", "theirs"))
	c := vethPair("two", "ours", "theirs")
	c.A.Name, c.B.Name = "eth1", "eth1"
	second := create(t, env, c)
	exists := func(ref string, want bool) {
		t.Helper()
		ns, err := netns.Open(ref)
		if err == nil {
			ns.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := first.Delete(); err != nil {
		t.Fatal(err)
	}
	exists("ours", true)
	if err := second.Delete(); err != nil {
		t.Fatal(err)
	}
	exists("ours", false)
	exists("theirs", true)

	// The operator deletes ours, and makes another of that name.
	third := create(t, env, vethPair("three", "ours", "theirs"))
	if err := netns.Delete("ours"); err != nil {
		t.Fatal(err)
	}
	named(t, "ours")
	if err := third.Delete(); err != nil {
		t.Error(err)
	}
	exists("ours", true)
}

// Nothing of ours keeps a namespace alive, or the interface of another in it.
func TestNamespaceDiesWhenItsOwnerSaysSo(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	named(t, "mortal")
	foreignVeth(t, "host", "wit0", "wit1") // the witness: it goes with its peer
	p := createUp(t, env, PairConfig{Name: "m", A: EndConfig{Kind: Veth, Name: "eth0", Netns: "mortal"}, B: EndConfig{Kind: TAP, Name: "tap0", Netns: "mortal"}})
	ns := must(netns.Open("mortal"))
	in(t, "host", func(h *netlink.Handle) error { return h.LinkSetNsFd(must(h.LinkByName("wit1")), ns.FD()) })
	ns.Close()
	if err := netns.Delete("mortal"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the namespace's end", func() bool { return len(linksIn(t, "host")) == 1 })
	waitFor(t, "both ends to be gone", func() bool { return p.A.State() == Gone && p.B.State() == Gone })
}
