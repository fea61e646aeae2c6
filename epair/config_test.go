package epair

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const full = `# a lab
version: epair/v1
pool: {cpus: "0-1", policy: fifo, priority: 10}
rss:  {func: toeplitz, key: default, symmetric: true, fields: {udp4: sdfn, tcp4: sd}, table: weight 1 2, inner: true}
poller: {spin: 20us, yield: 1ms}
pairs:
  - name: web
    a: {kind: veth, name: eth0, netns: web, addresses: [10.0.0.1/24, "fd00::1/64"]}
    b:
      kind: veth
      name: eth0
      netns: db
      mac: 02:00:00:00:00:0b
      addresses:
        - 10.0.0.2/24
    datapath: user
    mode: poller
    port: packet
    mtu: 1500
    ring: 1024
    poller: {idle: 1s}
  - name: 10
    a: {kind: tap, name: 123, netns: pid:1}
    b: {kind: dev, name: eth0}
`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(full), []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Version: "epair/v1",
		Pool:    PoolConfig{CPUs: "0-1", Policy: "fifo", Priority: 10},
		RSS: RSSConfig{
			Func: "toeplitz", Key: "default", Symmetric: true, Table: "weight 1 2", Inner: true,
			Fields: map[string]string{"udp4": "sdfn", "tcp4": "sd"},
		},
		Poller: PollerConfig{Spin: 20 * time.Microsecond, Yield: time.Millisecond},
		Pairs: []PairConfig{{
			Name:     "web",
			A:        EndConfig{Kind: "veth", Name: "eth0", Netns: "web", Addresses: []string{"10.0.0.1/24", "fd00::1/64"}},
			B:        EndConfig{Kind: "veth", Name: "eth0", Netns: "db", MAC: "02:00:00:00:00:0b", Addresses: []string{"10.0.0.2/24"}},
			Datapath: "user", Mode: "poller", Port: "packet", MTU: 1500, Ring: 1024,
			Poller: &PollerConfig{Idle: time.Second},
		}, {
			Name:     "10",
			A:        EndConfig{Kind: "tap", Name: "123", Netns: "pid:1"},
			B:        EndConfig{Kind: "dev", Name: "eth0", Netns: "host"},
			Datapath: "auto", Mode: "pool", Port: "packet",
		}},
	}
	if w := got.Warnings(); w != nil {
		t.Errorf("warnings %q", w)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseOtherSpellings(t *testing.T) {
	c, err := Parse([]byte("version: epair/v1\npool: {cpus: [0, 0, 1]}\nrss: {table: [0, 1, 1], key: 0123e5}\n"+
		"pairs:\n- &p\n  name: x\n  a: &web {kind: veth, name: eth0, netns: web}\n  b: {kind: veth, name: eth1, netns: web}\n"+
		"- {name: y, a: {kind: dev, name: \"a%b\"}, b: {kind: tap, name: t0, netns: ./ns}, mtu: 68}\n"), []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	if c.Pool.CPUs != "0,0,1" || c.RSS.Table != "0,1,1" || c.RSS.Key != "0123e5" || len(c.Pairs) != 2 {
		t.Errorf("%+v", c)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "share cpu 0:") {
		t.Errorf("warnings %q", w)
	}
	if c, err := Parse([]byte("version: epair/v1\n"), nil); err != nil || len(c.Pairs) != 0 {
		t.Errorf("no pairs: %+v %v", c, err)
	}
}

// pair puts text into the place of a pair's settings, on line 6 and after.
func pair(text string) string {
	return "version: epair/v1\npairs:\n- name: p\n  a: {kind: veth, name: eth0, netns: x}\n  b: {kind: veth, name: eth0, netns: y}\n" + text
}

// endA puts text into end a, on line 4.
func endA(text string) string {
	return "version: epair/v1\npairs:\n- name: p\n  a: {" + text + "}\n  b: {kind: veth, name: eth9, netns: y}\n"
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "it is empty (start with version: epair/v1)"},
		{"# nothing\n", "it is empty (start with version: epair/v1)"},
		{"pairs: []\n", `version: "" isn't supported (write epair/v1)`},
		{"version: epair/v2\n", `line 1: version: "epair/v2" isn't supported (write epair/v1)`},
		{"version: epair/v1\nversion: epair/v1\n", `line 2: mapping key "version" already defined at [1:1]`},
		{"version: epair/v1\npool: [\n", "line 2: "},
		{"version: epair/v1\n---\nversion: epair/v1\n", "line 3: a second document (write one)"},
		{"just words\n", `line 1: want keys and values, not "just words"`},
		{"- 1\n", "line 1: want keys and values, not a list"},
		{"version: epair/v1\npears: []\n", `line 2: unknown key "pears" (known keys: version, pool, rss, poller, pairs)`},
		{"version: epair/v1\npairs: 5\n", `line 2: pairs: want a list, not "5"`},
		{"version: epair/v1\npairs:\n", "line 2: pairs: has no value (leave the key out for the default)"},
		{"version: epair/v1\npool: {cpus: 0-2}\n", "line 2: pool.cpus: cpu 2 may not be used by this process (allowed: 0-1)"},
		{"version: epair/v1\npool: {cpus: x}\n", `line 2: pool.cpus: cpus "x": not a CPU list (write it like 0-3,8)`},
		{"version: epair/v1\npool: {cpus: {a: 1}}\n", "line 2: pool.cpus: want text, not keys and values"},
		{"version: epair/v1\npool: {policy: idle}\n", `line 2: pool.policy: "idle" is unknown (use other, batch, fifo or rr)`},
		{"version: epair/v1\npool: {policy: rr}\n", "line 2: pool.priority: policy rr needs a priority from 1 to 99, not 0"},
		{"version: epair/v1\npool: {priority: 5}\n", "line 2: pool.priority: only the policies fifo and rr have one (leave it out)"},
		{"version: epair/v1\npool: {priority: high}\n", `line 2: pool.priority: want a number, not "high"`},
		{"version: epair/v1\npool: {priority: 1.5}\n", `line 2: pool.priority: want a number, not "1.5"`},
		{"version: epair/v1\nrss: {symmetric: 1}\n", `line 2: rss.symmetric: want true or false, not "1"`},
		{"version: epair/v1\nrss: {fields: sdfn}\n", `line 2: rss.fields: want keys and values, not "sdfn"`},
		{"version: epair/v1\nrss: {fields: {\"a\\nb\": [1]}}\n", `line 2: rss.fields["a\nb"]: want text, not a list`},
		{"version: epair/v1\nrss: {func: [a]}\n", "line 2: rss.func: want text, not a list"},
		{"version: epair/v1\npoller: {idle: 5}\n", `line 2: poller.idle: want a time with its unit, such as 20us or 10ms, not "5"`},
		{"version: epair/v1\npoller: {spin: -1us}\n", "line 2: poller.spin: a time can't be negative"},
		{"version: epair/v1\nrss: *r\n", `line 2: rss: no anchor "r" before it`},
		{"version: epair/v1\nrss: !!map {}\n", "isn't supported"},
		{pair("  mtu: abc\n"), `line 6: pairs[0].mtu: want a number, not "abc"`},
		{pair("  mtu: 67\n"), "line 6: pairs[0].mtu: 67 is out of range (68 to 65535)"},
		{pair("  mtu: 65536\n"), "line 6: pairs[0].mtu: 65536 is out of range (68 to 65535)"},
		{pair("  ring: 1000\n"), "line 6: pairs[0].ring: 1000 isn't a power of two from 64 to 65536"},
		{pair("  datapath: fast\n"), `line 6: pairs[0].datapath: "fast" is unknown (use auto, direct, tc, xdp or user)`},
		{pair("  mode: pol\n"), `line 6: pairs[0].mode: "pol" is unknown (use inline, pool or poller)`},
		{pair("  port: raw\n"), `line 6: pairs[0].port: "raw" is unknown (use packet or xdp)`},
		{pair("  poller: {idle: -1s}\n"), "line 6: pairs[0].poller.idle: a time can't be negative"},
		{pair("- name: p\n  a: {kind: dev, name: e}\n  b: {kind: dev, name: f}\n"), `line 6: pairs[1].name: "p" is the name of pairs[0] too (choose another)`},
		{pair("- name: q\n  a: {kind: veth, name: eth1, netns: x}\n  b: {kind: veth, name: eth0, netns: /run/netns/x}\n"),
			`line 8: pairs[1].b: interface eth0 in /run/netns/x is in pair "p" already`},
		{"version: epair/v1\npairs: [{}]\n", "line 2: pairs[0].name: a pair needs a name"},
		{"version: epair/v1\npairs: [{name: a/b}]\n", `line 2: pairs[0].name: "a/b": use letters, digits, and - _ . after the first`},
		{"version: epair/v1\npairs: [{name: x}]\n", "line 2: pairs[0].a.kind: an end needs a kind (veth, tap or dev)"},
		{endA("kind: veth, name: eth0, netns: x, adress: []"),
			`line 4: unknown key "adress" in pairs[0].a (known keys: kind, name, netns, mac, addresses)`},
		{endA("kind: tun, name: eth0, netns: x"), `line 4: pairs[0].a.kind: "tun" is unknown (use veth, tap or dev)`},
		{endA("kind: veth, netns: x"), "line 4: pairs[0].a.name: an end needs the name of an interface"},
		{endA("kind: veth, name: sixteencharslong, netns: x"), `line 4: pairs[0].a.name: "sixteencharslong" has 16 characters, an interface name has at most 15`},
		{endA("kind: veth, name: a/b, netns: x"), `line 4: pairs[0].a.name: "a/b": '/' can't be in the name of an interface`},
		{endA("kind: veth, name: v%d, netns: x"), `line 4: pairs[0].a.name: "v%d": '%' can't be in the name of an interface`},
		{endA(`kind: dev, name: "a b", netns: x`), `line 4: pairs[0].a.name: "a b": ' ' can't be in the name of an interface`},
		{endA("kind: dev, name: .., netns: x"), `line 4: pairs[0].a.name: ".." can't be the name of an interface`},
		{endA("kind: veth, name: eth0"), "line 4: pairs[0].a.netns: a veth end needs a namespace (a name, pid:N, a path or host)"},
		{endA("kind: veth, name: eth0, netns: pid:x"), `line 4: pairs[0].a.netns: namespace "pid:x": invalid reference (write pid:N with a process id)`},
		{endA("kind: veth, name: eth9, netns: y"), "line 5: pairs[0].b: both ends are interface eth9 in y"},
		{endA("kind: dev, name: eth0, mac: 02:00:00:00:00:0a"), "line 4: pairs[0].a: mac and addresses of an existing interface stay as they are (leave them out)"},
		{endA("kind: veth, name: e, netns: x, mac: zz"), `line 4: pairs[0].a.mac: "zz" isn't a MAC address (write it like 02:00:00:00:00:0a)`},
		{endA("kind: veth, name: e, netns: x, mac: 01:00:5e:00:00:01"), "line 4: pairs[0].a.mac: 01:00:5e:00:00:01 is a multicast address"},
		{endA("kind: veth, name: e, netns: x, mac: 00:00:00:00:00:00"), "line 4: pairs[0].a.mac: 00:00:00:00:00:00 is no address"},
		{endA("kind: veth, name: e, netns: x, addresses: 10.0.0.1/24"), `line 4: pairs[0].a.addresses: want a list, not "10.0.0.1/24"`},
		{endA("kind: veth, name: e, netns: x, addresses: [10.0.0.1]"),
			`line 4: pairs[0].a.addresses[0]: "10.0.0.1" isn't an address with its prefix length (write it like 10.0.0.1/24)`},
		{endA("kind: veth, name: e, netns: x, addresses: [1.0.0.1/8, 224.0.0.1/4]"), "line 4: pairs[0].a.addresses[1]: 224.0.0.1/4 can't be the address of an interface"},
		{endA("kind: veth, name: e, netns: x, addresses: [1.0.0.1/8, 1.0.0.1/8]"), "line 4: pairs[0].a.addresses[1]: 1.0.0.1/8 is there twice"},
		{endA("kind: veth, name: e, netns: x, addresses: ['fd00::1/64']") + "  mtu: 1000\n",
			"line 4: pairs[0].a.addresses[0]: fd00::1/64 needs an mtu of at least 1280, not 1000"},
		{endA("kind: dev, name: e") + "  datapath: direct\n", "line 6: pairs[0].datapath: direct joins two veth ends, not dev and veth (use auto)"},
		{endA("kind: tap, name: e, netns: x") + "  datapath: tc\n", "line 6: pairs[0].datapath: tc can't carry a tap end (use user)"},
	} {
		_, err := Parse([]byte(c.text), []int{0, 1})
		switch {
		case err == nil:
			t.Errorf("%q: no error, want %q", c.text, c.want)
		case !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, ErrConfig):
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lab.yaml")
	if _, err := Load(path, nil); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrConfig) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte(endA("kind: veth, adress: x")), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "read " + path + `: line 4: unknown key "adress" in pairs[0].a (known keys: kind, name, netns, mac, addresses)`
	if _, err := Load(path, nil); err == nil || err.Error() != want || !errors.Is(err, ErrConfig) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path, []int{0, 1}); err != nil || len(c.Pairs) != 2 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestParseEnd(t *testing.T) {
	for _, c := range []struct {
		in   string
		want EndConfig
	}{
		{"veth:eth0@web", EndConfig{Kind: "veth", Name: "eth0", Netns: "web"}},
		{"tap:tap0@pid:12", EndConfig{Kind: "tap", Name: "tap0", Netns: "pid:12"}},
		{"veth:eth0@/run/netns/a@b", EndConfig{Kind: "veth", Name: "eth0", Netns: "/run/netns/a@b"}},
		{"dev:eth0", EndConfig{Kind: "dev", Name: "eth0"}},
		{"dev:eth0.5@host", EndConfig{Kind: "dev", Name: "eth0.5", Netns: "host"}},
	} {
		got, err := ParseEnd(c.in)
		if err != nil || !reflect.DeepEqual(got, c.want) || got.String() != c.in {
			t.Errorf("%s: %+v (%s) %v", c.in, got, got, err)
		}
	}
	for _, bad := range []string{"", "eth0", "eth0@web", "tun:x@y", "veth:eth0", "veth:eth0@", "veth:@web", "dev:", "dev:x@", "tap:sixteencharslong@x", "veth:a b@x", "veth:eth0@pid:0"} {
		_, err := ParseEnd(bad)
		if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "end \""+bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(pair("  mtu: 1\n")))
	f.Add([]byte("a: &x [*x, *x]\nb: *x\n"))
	f.Add([]byte("version: epair/v1\npairs: [{a: {}, ? [x]: y}]"))
	f.Add([]byte("%TAG ! x\n--- |\n text\n...\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, []int{0, 1})
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !errors.Is(err, ErrConfig) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		if err := c.Check([]int{0, 1}); err != nil {
			t.Errorf("%q: accepted, then refused: %v", data, err)
		}
	})
}

func FuzzParseEnd(f *testing.F) {
	f.Add("veth:eth0@web")
	f.Add("dev:eth0")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEnd(s)
		if err != nil {
			return
		}
		if e.String() != s {
			t.Errorf("%q became %q", s, e)
		}
	})
}

// What never ends isn't read for ever.
func TestLoadEndless(t *testing.T) {
	if _, err := Load("/dev/zero", nil); err == nil || err.Error() != "read configuration: /dev/zero is longer than 64 MiB" {
		t.Error(err)
	}
}
