package epair

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/epair-net/epair/internal/netns"
)

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
