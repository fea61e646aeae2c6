package epair

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/netns"
)

// GC removes what crashed instances have left: interfaces and namespaces with their tags,
// here and in all named namespaces, and then their locks. It returns what it removed. Objects of others, and of
// instances that run, are left alone. dir is EnvConfig.Dir.
//
// A daemon calls it after it has created its pairs, which adopt the namespaces they need.
func GC(dir string) (removed []string, err error) {
	i := &instance{dir: cmp.Or(dir, "/run/epair")}
	ids, err := i.dead()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	refs := []string{netns.Host}
	names, err := os.ReadDir(netns.RunDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, n := range names {
		refs = append(refs, n.Name())
	}
	var errs []error
	for _, ref := range refs {
		what, err := i.sweep(ref)
		removed = append(removed, what...)
		if err != nil {
			errs = append(errs, fmt.Errorf("clean namespace %s: %w", ref, denied(err)))
		}
	}
	if len(errs) > 0 {
		return removed, errors.Join(errs...) // the locks stay, so that the next time finds the rest
	}
	for _, id := range ids {
		if err := os.Remove(i.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

// sweep removes the orphans of one namespace, and the namespace if it's one.
func (i *instance) sweep(ref string) (removed []string, err error) {
	ns, err := netns.Open(ref)
	if errors.Is(err, netns.ErrNotExist) || errors.Is(err, netns.ErrNotNetns) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	h, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, l := range links {
		a := l.Attrs()
		o, err := i.owner(a.Alias)
		if err != nil {
			return removed, err
		}
		switch {
		case o != orphan:
		case a.Name != "lo":
			if err := delLink(h, a.Index); err != nil {
				return removed, err
			}
			removed = append(removed, fmt.Sprintf("interface %s in %s", a.Name, ref))
		case ref != netns.Host:
			if err := netns.Delete(ref); err != nil {
				return removed, err
			}
			return append(removed, "namespace "+ref), nil
		}
	}
	return removed, nil
}
