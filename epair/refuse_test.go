package epair

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestRefused(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	named(t, "there")
	foreignVeth(t, "there", "mine", "mine2")
	create(t, env, vethPair("first", "ra", "rb"))
	before := world(t)
	pid := "pid:" + strings.TrimSpace(must(os.Readlink("/proc/self")))
	for _, c := range []struct {
		name string
		cfg  PairConfig
		want string
	}{
		{"name taken", vethPair("first", "rc", "rd"), "create pair first: name is taken: file already exists (choose another)"},
		{"interface not ours", PairConfig{Name: "p", A: EndConfig{Kind: Veth, Name: "mine", Netns: "there"}, B: EndConfig{Kind: TAP, Name: "t0", Netns: "new"}},
			"create pair p: create veth mine in there: name is taken by an interface that is not epair's (choose another name or remove it)"},
		{"interface not ours, tap", PairConfig{Name: "p", A: EndConfig{Kind: Veth, Name: "x", Netns: "new"}, B: EndConfig{Kind: TAP, Name: "mine", Netns: "there"}},
			"create pair p: create tap mine in there: name is taken by an interface that is not epair's (choose another name or remove it)"},
		{"interface of another pair", vethPair("p", "ra", "new"), "create pair p: create veth eth0 in ra: name is taken by another end of this epair, epair:" + env.ID() + ":first:a (choose another name)"},
		{"same interface by two references", vethPair("p", "host", pid), "create pair p: end b: both ends are interface eth0 in " + pid},
		{"no such process", vethPair("p", "new", "pid:2147483646"), "create pair p: end b: open namespace pid:2147483646: open /proc/2147483646/ns/net: no such file or directory"},
		{"no such path", vethPair("p", "/run/nowhere", "new"), "create pair p: end a: open namespace /run/nowhere: open /run/nowhere: no such file or directory"},
		{"no such device", PairConfig{Name: "p", A: EndConfig{Kind: Dev, Name: "nodev"}, B: EndConfig{Kind: TAP, Name: "t0", Netns: "new"}},
			"create pair p: attach dev nodev in host: no such device (ip link shows the interfaces of this namespace)"},
		{"no such namespace of a device", PairConfig{Name: "p", A: EndConfig{Kind: Dev, Name: "x", Netns: "nowhere"}, B: EndConfig{Kind: TAP, Name: "t0", Netns: "new"}},
			"create pair p: end a: find dev x in nowhere: open namespace nowhere: open /run/netns/nowhere: no such file or directory (ip netns lists the named ones)"},
		{"loopback", PairConfig{Name: "p", A: EndConfig{Kind: Dev, Name: "lo"}, B: EndConfig{Kind: TAP, Name: "t0", Netns: "new"}},
			"create pair p: attach dev lo in host: its link type is loopback (a pair carries Ethernet frames)"},
		{"mtu of a device", PairConfig{Name: "p", MTU: 1400, A: EndConfig{Kind: Dev, Name: "mine", Netns: "there"}, B: EndConfig{Kind: TAP, Name: "t0", Netns: "new"}},
			"create pair p: attach dev mine in there: its mtu is 1500, not 1400 (leave mtu out, or: ip link set mine mtu 1400)"},
		{"bad configuration", PairConfig{Name: "p", A: EndConfig{Kind: Veth, Name: "sixteencharslong", Netns: "new"}}, `create pair p: a.name: "sixteencharslong" has 16 characters`},
	} {
		p, err := Create(c.cfg, env)
		if err == nil {
			t.Errorf("%s: created %s", c.name, p.Name())
			continue
		}
		if !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
		if strings.HasPrefix(c.name, "interface ") && !errors.Is(err, ErrTaken) {
			t.Errorf("%s: not ErrTaken", c.name)
		}
		same(t, before, world(t))
	}
}
