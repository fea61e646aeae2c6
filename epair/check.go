package epair

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epair-net/epair/internal/cpus"
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
	if err := oneOf("rss.rebalance", c.RSS.Rebalance, "off", "auto"); err != nil {
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
	case c.Persist && c.Datapath == "user":
		return wrong(join(path, "persist"), "frames of datapath user pass through the process, and end with it (use direct or tc, or leave persist out)")
	case c.Persist && slices.Contains(kinds, TAP):
		return wrong(join(path, "persist"), "a tap ends with the process that has its queues (leave persist out)")
	case c.Persist && c.Port == "xdp":
		return wrong(join(path, "persist"), "port xdp is of datapath user, whose frames pass through the process (leave one of them out)")
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

// oneOf accepts an empty value: the default.
func oneOf(path, value string, words ...string) error {
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	return wrong(path, "%.40q is unknown (use %s or %s)", value, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
}
