package epair

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

func directPair(name, a, b string) PairConfig {
	c := vethPair(name, a, b)
	c.Datapath = "direct"
	return c
}

// A direct pair is one veth, as configured, and goes as a whole.
func TestDirect(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	c := directPair("d", "diva", "divb")
	c.MTU, c.A.MAC, c.A.Addresses = 9000, "02:00:00:00:00:01", []string{"10.0.0.1/24"}
	p := createUp(t, env, c)
	a, b := link(t, "diva", "eth0"), link(t, "divb", "eth0")
	if a.ParentIndex != b.Index || b.ParentIndex != a.Index || a.MTU != 9000 || b.MTU != 9000 {
		t.Errorf("not a pair: %+v %+v", a, b)
	}
	if a.HardwareAddr.String() != c.A.MAC || !slices.Equal(b.HardwareAddr, p.B.MAC()) || a.Index != p.A.InnerIndex() || b.Index != p.B.InnerIndex() {
		t.Errorf("addresses %v %v, indexes %d %d", a.HardwareAddr, b.HardwareAddr, a.Index, b.Index)
	}
	if a.Alias != p.A.tag() || b.Alias != p.B.tag() || p.A.Ifindex() != 0 || p.A.NetnsFD() != -1 {
		t.Errorf("tags %q %q, outer %d in %d", a.Alias, b.Alias, p.A.Ifindex(), p.A.NetnsFD())
	}
	if links, err := env.out.LinkList(); err != nil || len(links) != 1 {
		t.Errorf("private namespace has %v %v", links, err)
	}
	in(t, "diva", func(h *netlink.Handle) error {
		addrs, err := h.AddrList(at(a.Index), unix.AF_INET)
		if err == nil && (len(addrs) != 1 || addrs[0].IPNet.String() != "10.0.0.1/24") {
			t.Errorf("addresses: %v", addrs)
		}
		return err
	})
	if p.State() != Up {
		t.Errorf("state %s", p.State())
	}
	if s, err := p.A.Stats(); err != nil {
		t.Errorf("%+v %v", s, err)
	}
	if err := errors.Join(p.Delete(), p.Delete()); err != nil {
		t.Error(err)
	}
	if p.State() != Gone {
		t.Errorf("state %s", p.State())
	}
	// Both ends in one namespace.
	q := createUp(t, env, PairConfig{Name: "one", Datapath: "direct", A: EndConfig{Kind: Veth, Name: "x", Netns: "divc"}, B: EndConfig{Kind: Veth, Name: "y", Netns: "divc"}})
	if q.State() != Up {
		t.Errorf("state %s", q.State())
	}
}

// What happens to an end shows in its state; when one goes, so does the other.
func TestDirectStates(t *testing.T) {
	for _, end := range []string{"link", "namespace", "both namespaces"} {
		t.Run(end, func(t *testing.T) {
			env := newEnv(t, EnvConfig{})
			named(t, "dsa")
			named(t, "dsb")
			p := createUp(t, env, directPair("s", "dsa", "dsb"))
			both := func(want State) {
				t.Helper()
				waitFor(t, "state "+want.String(), func() bool { return p.A.State() == want && p.B.State() == want })
			}
			both(Up)
			for range 3 {
				in(t, "dsa", func(h *netlink.Handle) error { return h.LinkSetDown(must(h.LinkByName("eth0"))) })
				both(Down)
				in(t, "dsa", func(h *netlink.Handle) error { return h.LinkSetUp(must(h.LinkByName("eth0"))) })
				both(Up)
			}
			var err error
			switch end {
			case "link":
				in(t, "dsa", func(h *netlink.Handle) error { return h.LinkDel(must(h.LinkByName("eth0"))) })
			case "namespace":
				err = netns.Delete("dsa")
			default:
				err = errors.Join(netns.Delete("dsa"), netns.Delete("dsb"))
			}
			if err != nil {
				t.Fatal(err)
			}
			both(Gone)
			if err := p.Up(); !errors.Is(err, unix.ENODEV) {
				t.Errorf("up: %v", err)
			}
			if err := p.Delete(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whichever step fails, nothing is left.
func TestDirectEveryStepFails(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	before := world(t)
	if steps := failEach(t, env, directPair("fault", "dfa", "dfb"), before); steps < 10 {
		t.Errorf("only %d steps failed", steps)
	}
}

// An interface of somebody else is never touched.
func TestDirectRefuses(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	named(t, "drb")
	foreignVeth(t, "drb", "eth0", "eth1")
	before := world(t)
	if _, err := Create(directPair("taken", "dra", "drb"), env); !errors.Is(err, ErrTaken) {
		t.Errorf("taken name: %v", err)
	}
	same(t, before, world(t))
}

// Many are deleted in one go.
func TestManyDirect(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	before := world(t)
	var pairs []*Pair
	for i := range 50 {
		c := directPair(fmt.Sprint("m", i), "dma", "dmb")
		c.A.Name, c.B.Name = fmt.Sprint("a", i), fmt.Sprint("b", i)
		pairs = append(pairs, createUp(t, env, c))
	}
	if err := env.DeleteAll(pairs); err != nil {
		t.Fatal(err)
	}
	same(t, before, world(t))
}
