package epair

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

// Bounds of what a pair may ask for.
const (
	minMTU, maxMTU   = 68, 65535 // ETH_MIN_MTU, and what a veth and a TAP allow at most
	minMTU6          = 1280      // IPv6 leaves an interface with less (RFC 8200, section 5)
	minRing, maxRing = 64, 65536
	maxIfname        = 15 // IFNAMSIZ less the final zero
	maxPairName      = 64
)

// Check tells what is wrong with c: an ErrConfig that names the key. allowed is the CPUs that the pool may
// use. What rss says is checked by who understands it.
func (c *Config) Check(allowed []int) error {
	if c.Version != Version {
		return wrong("version", "%.20q isn't supported (write %s)", c.Version, Version)
	}
	if err := c.Pool.check(allowed); err != nil {
		return err
	}
	if err := c.Poller.check("poller"); err != nil {
		return err
	}
	names, ends := map[string]int{}, map[string]string{}
	for i := range c.Pairs {
		p, path := &c.Pairs[i], fmt.Sprintf("pairs[%d]", i)
		if err := p.check(path); err != nil {
			return err
		}
		if first, taken := names[p.Name]; taken {
			return wrong(join(path, "name"), "%q is the name of pairs[%d] too (choose another)", p.Name, first)
		}
		names[p.Name] = i
		for _, e := range p.ends() {
			if user, taken := ends[e.identity()]; taken {
				return wrong(join(path, e.key), "interface %s in %s is in pair %q already", e.Name, e.netns(), user)
			}
		}
		ends[p.A.identity()], ends[p.B.identity()] = p.Name, p.Name
	}
	return nil
}

func (c *PoolConfig) check(allowed []int) error {
	set, err := cpus.Parse(c.CPUs)
	if err != nil {
		return wrong("pool.cpus", "%v", err)
	}
	if bad := cpus.Without(set, allowed); len(bad) > 0 {
		return wrong("pool.cpus", "cpu %s may not be used by this process (allowed: %s)", cpus.Format(bad), cpus.Format(allowed))
	}
	if err := oneOf("pool.policy", c.Policy, "other", "batch", "fifo", "rr"); err != nil {
		return err
	}
	realtime := c.Policy == "fifo" || c.Policy == "rr"
	switch {
	case realtime && (c.Priority < 1 || c.Priority > 99):
		return wrong("pool.priority", "policy %s needs a priority from 1 to 99, not %d", c.Policy, c.Priority)
	case !realtime && c.Priority != 0:
		return wrong("pool.priority", "only the policies fifo and rr have one (leave it out)")
	}
	return nil
}

func (c *PollerConfig) check(path string) error {
	for _, t := range []struct {
		key string
		d   time.Duration
	}{{"spin", c.Spin}, {"yield", c.Yield}, {"idle", c.Idle}} {
		if t.d < 0 {
			return wrong(join(path, t.key), "a time can't be negative")
		}
	}
	return nil
}

// keyedEnd is an end with its key.
type keyedEnd struct {
	key string
	*EndConfig
}

func (c *PairConfig) ends() [2]keyedEnd { return [2]keyedEnd{{"a", &c.A}, {"b", &c.B}} }

// Check tells what is wrong with one pair.
func (c *PairConfig) Check() error { return c.check("") }

func (c *PairConfig) check(path string) error {
	if err := checkPairName(join(path, "name"), c.Name); err != nil {
		return err
	}
	for _, e := range c.ends() {
		if err := e.check(join(path, e.key), c.MTU); err != nil {
			return err
		}
	}
	if c.A.identity() == c.B.identity() {
		return wrong(join(path, "b"), "both ends are interface %s in %s", c.B.Name, c.B.netns())
	}
	for _, w := range []struct {
		key, value string
		words      []string
	}{
		{"datapath", c.Datapath, []string{"auto", "direct", "tc", "xdp", "user"}},
		{"mode", c.Mode, []string{"inline", "pool", "poller"}},
		{"port", c.Port, []string{"packet", "xdp"}},
	} {
		if err := oneOf(join(path, w.key), w.value, w.words...); err != nil {
			return err
		}
	}
	if err := c.checkKinds(path); err != nil {
		return err
	}
	return c.checkNumbers(path)
}

// checkKinds refuses a datapath that the ends can't have.
func (c *PairConfig) checkKinds(path string) error {
	key, kinds := join(path, "datapath"), []string{c.A.Kind, c.B.Kind}
	switch {
	case c.Datapath == "direct" && (c.A.Kind != Veth || c.B.Kind != Veth):
		return wrong(key, "direct joins two veth ends, not %s and %s (use auto)", c.A.Kind, c.B.Kind)
	case (c.Datapath == "tc" || c.Datapath == "xdp") && slices.Contains(kinds, TAP):
		return wrong(key, "%s can't carry a tap end (use user)", c.Datapath)
	}
	return nil
}

func (c *PairConfig) checkNumbers(path string) error {
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		return wrong(join(path, "mtu"), "%d is out of range (%d to %d)", c.MTU, minMTU, maxMTU)
	}
	if c.Ring != 0 && (c.Ring < minRing || c.Ring > maxRing || c.Ring&(c.Ring-1) != 0) {
		return wrong(join(path, "ring"), "%d isn't a power of two from %d to %d", c.Ring, minRing, maxRing)
	}
	if c.Poller != nil {
		return c.Poller.check(join(path, "poller"))
	}
	return nil
}

// checkPairName allows what can stand in an ownership tag, a URL and a thread's name.
func checkPairName(path, name string) error {
	switch {
	case name == "":
		return wrong(path, "a pair needs a name")
	case len(name) > maxPairName:
		return wrong(path, "%.20q… is longer than %d characters", name, maxPairName)
	}
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("-_.", r)) {
			return wrong(path, "%q: use letters, digits, and - _ . after the first", name)
		}
	}
	return nil
}

func (e *EndConfig) check(path string, mtu int) error {
	if e.Kind == "" {
		return wrong(join(path, "kind"), "an end needs a kind (veth, tap or dev)")
	}
	if err := oneOf(join(path, "kind"), e.Kind, Veth, TAP, Dev); err != nil {
		return err
	}
	if err := checkIfname(join(path, "name"), e.Name, e.Kind); err != nil {
		return err
	}
	if e.Netns == "" && e.Kind != Dev {
		return wrong(join(path, "netns"), "a %s end needs a namespace (a name, pid:N, a path or host)", e.Kind)
	}
	if _, err := netns.Path(e.netns()); err != nil {
		return wrong(join(path, "netns"), "%v", err)
	}
	if e.Kind == Dev && (e.MAC != "" || len(e.Addresses) > 0) {
		return wrong(path, "mac and addresses of an existing interface stay as they are (leave them out)")
	}
	if err := e.checkMAC(join(path, "mac")); err != nil {
		return err
	}
	return e.checkAddresses(join(path, "addresses"), mtu)
}

// checkIfname refuses what dev_valid_name (net/core/dev.c) refuses; and, for an interface that we
// create, '%', which makes the kernel choose a number, and '@', which ends the name in ParseEnd.
func checkIfname(path, name, kind string) error {
	switch {
	case name == "":
		return wrong(path, "an end needs the name of an interface")
	case len(name) > maxIfname:
		return wrong(path, "%.40q has %d characters, an interface name has at most %d", name, len(name), maxIfname)
	case name == "." || name == "..":
		return wrong(path, "%q can't be the name of an interface", name)
	}
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c == 0x7f || c == 0xa0 || c == '/' || c == ':' || kind != Dev && (c == '%' || c == '@') {
			return wrong(path, "%q: %q can't be in the name of an interface", name, c)
		}
	}
	return nil
}

func (e *EndConfig) checkMAC(path string) error {
	if e.MAC == "" {
		return nil
	}
	m, err := net.ParseMAC(e.MAC)
	switch {
	case err != nil || len(m) != 6:
		return wrong(path, "%.40q isn't a MAC address (write it like 02:00:00:00:00:0a)", e.MAC)
	case m[0]&1 != 0:
		return wrong(path, "%s is a multicast address", e.MAC)
	case [6]byte(m) == [6]byte{}:
		return wrong(path, "%s is no address", e.MAC)
	}
	return nil
}

func (e *EndConfig) checkAddresses(path string, mtu int) error {
	seen := map[netip.Prefix]bool{}
	for i, text := range e.Addresses {
		p, err := netip.ParsePrefix(text)
		key := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case err != nil:
			return wrong(key, "%.50q isn't an address with its prefix length (write it like 10.0.0.1/24)", text)
		case p.Addr().IsMulticast() || p.Addr().IsUnspecified() || p.Addr().Is4In6():
			return wrong(key, "%s can't be the address of an interface", text)
		case seen[p]:
			return wrong(key, "%s is there twice", text)
		case p.Addr().Is6() && mtu != 0 && mtu < minMTU6:
			return wrong(key, "%s needs an mtu of at least %d, not %d", text, minMTU6, mtu)
		}
		seen[p] = true
	}
	return nil
}

// netns returns the namespace, with its default.
func (e *EndConfig) netns() string {
	if e.Netns == "" {
		return netns.Host
	}
	return e.Netns
}

// identity is what two ends have in common if they are surely the same interface.
func (e *EndConfig) identity() string {
	path, err := netns.Path(e.netns())
	if err != nil {
		path = e.netns()
	}
	return path + "\x00" + e.Name
}

// oneOf accepts an empty value: the default.
func oneOf(path, value string, words ...string) error {
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	return wrong(path, "%.40q is unknown (use %s or %s)", value, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
}

// ParseEnd reads an end as the command line has it:
// veth:IFNAME@NETNS, tap:IFNAME@NETNS or dev:IFNAME[@NETNS].
func ParseEnd(s string) (EndConfig, error) {
	const form = "write veth:IFNAME@NETNS, tap:IFNAME@NETNS or dev:IFNAME[@NETNS]"
	kind, rest, ok := strings.Cut(s, ":")
	if !ok || kind != Veth && kind != TAP && kind != Dev {
		return EndConfig{}, wrong("", "end %.60q: no kind (%s)", s, form)
	}
	e := EndConfig{Kind: kind}
	var at bool
	e.Name, e.Netns, at = strings.Cut(rest, "@")
	if at && e.Netns == "" || !at && kind != Dev {
		return EndConfig{}, wrong("", "end %.60q: no namespace (%s)", s, form)
	}
	if err := e.check("", 0); err != nil {
		return EndConfig{}, fmt.Errorf("end %.60q: %w", s, err)
	}
	return e, nil
}
