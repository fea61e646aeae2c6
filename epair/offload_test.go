package epair

import (
	"errors"
	"testing"

	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// Which offloads are on, on an end we created, follows from what can cross.
func TestOffloads(t *testing.T) {
	env := newEnv(t, EnvConfig{})
	foreignVeth(t, "host", "offd", "offx")
	untouched := features(t, "host", "offd")
	p := create(t, env, vethPair("off", "oa", "ob"))
	d := create(t, env, PairConfig{Name: "offdev", A: EndConfig{Kind: Dev, Name: "offd"}, B: EndConfig{Kind: TAP, Name: "tap0", Netns: "oa"}})

	keep := []string{"tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-udp-segmentation",
		"tx-vlan-hw-insert", "tx-scatter-gather", "tx-generic-segmentation"}
	off := []string{"tx-gre-segmentation", "tx-gre-csum-segmentation", "tx-ipxip4-segmentation", "tx-ipxip6-segmentation", "tx-udp_tnl-segmentation",
		"tx-udp_tnl-csum-segmentation", "tx-sctp-segmentation", "tx-gso-list", "tx-tcp-mangleid-segmentation", "tx-checksum-sctp"}
	check := func(when string, on, off []string) {
		t.Helper()
		f := features(t, "oa", "eth0")
		for _, name := range on {
			if _, known := f[name]; known && !f[name].On {
				t.Errorf("%s: %s is off", when, name)
			}
		}
		for _, name := range off {
			if f[name].On {
				t.Errorf("%s: %s is on", when, name)
			}
		}
	}
	check("created", keep, off)
	if err := p.A.SetOffloads(CarryNothing); err != nil {
		t.Fatal(err)
	}
	check("nothing carried", []string{"tx-scatter-gather", "tx-generic-segmentation"}, append(off, keep[:6]...))
	for range 2 {
		if err := p.A.SetOffloads(CarryVNet); err != nil {
			t.Fatal(err)
		}
		check("put back", keep, off)
	}
	if err := p.A.SetOffloads(CarryAll); err != nil {
		t.Fatal(err)
	}
	check("all carried", append(keep, "tx-gre-segmentation", "tx-sctp-segmentation", "tx-checksum-sctp"), nil)
	x := vethPair("offxdp", "oc", "oa")
	x.B.Name, x.Port = "eth1", "xdp"
	create(t, env, x)
	if f := features(t, "oc", "eth0"); f["tx-checksum-ip-generic"].On || f["tx-tcp-segmentation"].On || f["tx-vlan-hw-insert"].On {
		t.Errorf("port xdp: %v", f)
	}
	if err := d.A.SetOffloads(CarryNothing); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("dev: %v", err)
	}
	if err := d.B.SetOffloads(CarryVNet); err != nil {
		t.Errorf("tap: %v", err)
	}
	if now := features(t, "host", "offd"); len(now) == 0 || now["tx-gre-segmentation"] != untouched["tx-gre-segmentation"] || !now["tx-gre-segmentation"].On {
		t.Errorf("dev was changed: %v", now)
	}
}

func features(t *testing.T, ref, name string) map[string]ethtool.Feature {
	t.Helper()
	ns, err := netns.Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var f map[string]ethtool.Feature
	if err := ns.Do(func() (err error) { f, err = ethtool.Features(name); return err }); err != nil {
		t.Fatal(err)
	}
	return f
}
