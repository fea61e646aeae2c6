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
	i, ids, removed, err := sweepAll(dir, false)
	if err != nil {
		return removed, err // the locks stay, so that the next time finds the rest
	}
	var errs []error
	for _, id := range ids {
		if err := os.Remove(i.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

// Garbage returns what GC would remove, and changes nothing.
func Garbage(dir string) (found []string, err error) {
	_, _, found, err = sweepAll(dir, true)
	return found, err
}

// sweepAll sweeps all namespaces for what the crashed instances ids left.
func sweepAll(dir string, dry bool) (i *instance, ids, found []string, err error) {
	i = &instance{dir: cmp.Or(dir, "/run/epair")}
	ids, err = i.dead()
	if err != nil || len(ids) == 0 {
		return i, nil, nil, err
	}
	refs := []string{netns.Host}
	names, err := os.ReadDir(netns.RunDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return i, ids, nil, err
	}
	for _, n := range names {
		refs = append(refs, n.Name())
	}
	var errs []error
	for _, ref := range refs {
		what, err := i.sweep(ref, dry)
		found = append(found, what...)
		if err != nil {
			errs = append(errs, fmt.Errorf("clean namespace %s: %w", ref, denied(err)))
		}
	}
	return i, ids, found, errors.Join(errs...)
}

// sweep removes the orphans of one namespace, and the namespace if it's one; dry, it only lists them.
func (i *instance) sweep(ref string, dry bool) (found []string, err error) {
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
	links, err := allLinks(h)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		a := l.Attrs()
		o, err := i.owner(a.Alias)
		if err != nil {
			return found, err
		}
		var what string
		switch {
		case o != orphan:
			continue
		case a.Name != "lo":
			what = fmt.Sprintf("interface %s in %s", a.Name, ref)
			err = removeUnless(dry, func() error { return delLink(h, a.Index) })
		case ref != netns.Host:
			what = "namespace " + ref
			err = removeUnless(dry, func() error { return netns.Delete(ref) })
		default:
			continue
		}
		if err != nil {
			return found, err
		}
		found = append(found, what)
		if a.Name == "lo" {
			return found, nil // the rest goes with it
		}
	}
	return found, nil
}

// allLinks lists the links of a namespace. While links come and go the kernel's list may lack others, too.
func allLinks(h *netlink.Handle) (links []netlink.Link, err error) {
	const tries = 100
	for range tries {
		if links, err = h.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return links, err
}

func removeUnless(dry bool, remove func() error) error {
	if dry {
		return nil
	}
	return remove()
}
