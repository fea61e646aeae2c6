package epair

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// enterSpace opens the namespace of an end. A name that doesn't exist is created, if create says so;
// one that a crashed instance left is adopted. owned says that it's ours: leaveSpace must
// then be called when the end is gone, also if enterSpace failed later in Create.
func (e *Env) enterSpace(ref string, create bool) (ns *netns.NS, owned bool, err error) {
	e.spaceMu.Lock()
	defer e.spaceMu.Unlock()
	for range 8 { // others create and delete names too
		ns, err = netns.Open(ref)
		if err == nil {
			owned, err = e.own(ns, ref)
			break
		}
		if !create || !errors.Is(err, netns.ErrNotExist) || !netns.IsName(ref) {
			break
		}
		ns, err = e.createSpace(ref)
		if err == nil {
			owned = true
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
		return nil, false, caps.Explain(err, caps.SysAdmin, caps.NetAdmin)
	}
	return ns, owned, nil
}

// createSpace makes a named namespace of ours, with lo up. The tag is in it before the name
// exists, so that a crash never leaves one that nobody can tell to be ours.
func (e *Env) createSpace(name string) (*netns.NS, error) {
	ns, err := netns.NewAnonymous()
	if err != nil {
		return nil, err
	}
	err = withLo(ns, func(h *netlink.Handle, lo netlink.Link) error {
		return errors.Join(h.LinkSetAlias(lo, e.inst.spaceTag()), h.LinkSetUp(lo))
	})
	if err == nil {
		err = ns.Publish(name)
	}
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	e.spaces[name]++
	return ns, nil
}

// own says whether an existing namespace is ours, and adopts an orphan.
func (e *Env) own(ns *netns.NS, name string) (bool, error) {
	if !netns.IsName(name) {
		return false, nil
	}
	owned := false
	err := withLo(ns, func(h *netlink.Handle, lo netlink.Link) error {
		o, err := e.inst.owner(lo.Attrs().Alias)
		if err == nil && o == orphan {
			err = h.LinkSetAlias(lo, e.inst.spaceTag())
		}
		owned = err == nil && (o == own || o == orphan)
		return err
	})
	if owned {
		e.spaces[name]++
	}
	return owned, err
}

// leaveSpace gives up an owned namespace, and deletes it after the last end.
func (e *Env) leaveSpace(name string) error {
	e.spaceMu.Lock()
	defer e.spaceMu.Unlock()
	if e.spaces[name]--; e.spaces[name] > 0 {
		return nil
	}
	delete(e.spaces, name)
	return e.deleteSpace(name, e.inst.id)
}

// deleteSpace deletes a named namespace if it has the tag of that instance: the name
// may have been deleted and made anew by somebody else. It stays if a persistent pair has an end there that goes on.
func (e *Env) deleteSpace(name, id string) error {
	ns, err := netns.Open(name)
	if errors.Is(err, netns.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	stays, err := e.inst.keptIn(ns)
	if err != nil {
		return err
	}
	if stays {
		e.keepInstance()
		return nil
	}
	return deleteTagged(ns, name, tagPrefix+id)
}

func deleteTagged(ns *netns.NS, name, want string) error {
	tag := ""
	err := withLo(ns, func(_ *netlink.Handle, lo netlink.Link) error {
		tag = lo.Attrs().Alias
		return nil
	})
	if err != nil || tag != want {
		return err
	}
	return netns.Delete(name)
}

// withLo runs fn with the loopback interface of a namespace.
func withLo(ns *netns.NS, fn func(*netlink.Handle, netlink.Link) error) error {
	h, err := open(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look up lo: %w", err)
	}
	return fn(h, lo)
}
