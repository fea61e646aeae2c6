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

// Litter is what processes that ended have left.
type Litter struct {
	Garbage []string // of a crash: to be removed, or just removed
	Kept    []string // persistent pairs, which forward without a process
}

// GC removes what crashed instances have left: interfaces and namespaces with their tags,
// in all namespaces that have a name, a process or a record, and then their locks. It returns what it removed. Objects of others, of
// instances that run, and persistent pairs are left alone. dir is EnvConfig.Dir.
//
// A daemon calls it after it has created its pairs, which adopt the namespaces they need.
func GC(dir string) (removed []string, err error) {
	l, err := Sweep(dir, false, false)
	return l.Garbage, err
}

// Garbage returns what GC would remove, and changes nothing.
func Garbage(dir string) (found []string, err error) {
	l, err := Sweep(dir, true, false)
	return l.Garbage, err
}

// Sweep is GC, or Garbage if it's dry. With all, persistent pairs that no process looks after are garbage too.
func Sweep(dir string, dry, all bool) (l Litter, err error) {
	s := &sweeper{instance: &instance{dir: cmp.Or(dir, "/run/epair")}, dry: dry, kept: map[string]*keptPair{}, doomed: map[string]*instance{}, held: map[string]bool{}}
	ids, err := s.dead()
	if err != nil || len(ids) == 0 {
		return l, err
	}
	defer s.release()
	if err := s.sort(ids, all); err != nil {
		return l, err
	}
	err = s.sweepAll()
	l.Garbage = s.found
	if err != nil {
		return l, err // the locks stay, so that the next time finds the rest
	}
	var errs []error
	for _, id := range ids {
		what, err := s.finish(id)
		l.Garbage = append(l.Garbage, what...)
		errs = append(errs, err)
		if k := s.kept[id]; k != nil && k.links > 0 {
			l.Kept = append(l.Kept, fmt.Sprintf("pair %s (%s, %s to %s)", k.Pair.Name, k.Pair.Datapath, k.Pair.A, k.Pair.B))
		}
	}
	return l, errors.Join(errs...)
}

// sweeper is one Sweep.
type sweeper struct {
	*instance
	dry    bool
	kept   map[string]*keptPair // by instance: persistent pairs that stay
	doomed map[string]*instance // those whose lock was taken, to be removed
	held   map[string]bool      // instances whose tag is at a namespace that stays
	only   string               // unless empty: what isn't that instance's is left alone
	found  []string
	swept  map[netns.ID]bool // namespaces
}

// keptPair is a persistent pair without a process.
type keptPair struct {
	*record
	links int // of it that were found
}

// sort tells persistent pairs from what a crash left, and keeps processes from adopting what is going to be removed.
func (s *sweeper) sort(ids []string, all bool) error {
	for _, id := range ids {
		_, names, err := recordsOf(s.dir, id, "*")
		if err != nil {
			return err
		}
		for _, name := range names {
			rec, err := readRecord(s.dir, id, name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err == nil && rec.Ready && !all {
				s.kept[id] = &keptPair{record: rec}
			}
		}
		if len(names) == 0 || s.kept[id] != nil || s.dry {
			continue
		}
		i, err := takeInstance(s.dir, id)
		if err != nil {
			return err
		}
		if i != nil {
			s.doomed[id] = i
		}
	}
	return nil
}

// release gives the locks back.
func (s *sweeper) release() {
	for _, i := range s.doomed {
		i.file.Close()
	}
}

// owner is that of the instance, but for those whose lock the sweeper has.
func (s *sweeper) owner(alias string) (owner, error) {
	if id, ok := tagID(alias); ok && s.doomed[id] != nil {
		return orphan, nil
	}
	return s.instance.owner(alias)
}

// sweepAll sweeps all namespaces.
func (s *sweeper) sweepAll() error {
	refs, err := s.places()
	if err != nil {
		return err
	}
	var errs []error
	s.swept = map[netns.ID]bool{}
	for _, ref := range refs {
		if err := s.sweep(ref); err != nil {
			errs = append(errs, fmt.Errorf("clean namespace %s: %w", ref, denied(err)))
		}
	}
	return errors.Join(errs...)
}

// sweep removes the orphans of one namespace, and the namespace if it's one; dry, it only lists them. A namespace in which a persistent pair
// has an end stays.
func (s *sweeper) sweep(ref string) error {
	ns, err := s.openPlace(ref)
	if ns == nil || err != nil {
		return err
	}
	defer ns.Close()
	h, err := open(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	links, err := allLinks(h)
	if err != nil {
		return err
	}
	stays := s.count(links)
	for _, l := range links {
		if ended, err := s.remove(ref, h, l.Attrs(), stays); err != nil || ended {
			return err
		}
	}
	return nil
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

// count counts the interfaces of persistent pairs that stay, and says whether there are some.
func (s *sweeper) count(links []netlink.Link) (stays bool) {
	for _, l := range links {
		id, _ := tagID(l.Attrs().Alias)
		if k := s.kept[id]; k != nil && l.Attrs().Name != "lo" {
			k.links++
			stays = true
		}
	}
	return stays
}

// remove removes a link, or, if it's lo, its namespace, if it's an orphan.
func (s *sweeper) remove(ref string, h *netlink.Handle, a *netlink.LinkAttrs, stays bool) (ended bool, err error) {
	o, err := s.owner(a.Alias)
	if err != nil || o != orphan {
		return false, err
	}
	id, _ := tagID(a.Alias)
	var what string
	switch {
	case s.kept[id] != nil, s.only != "" && s.only != id:
		return false, nil
	case a.Name != "lo":
		what = fmt.Sprintf("interface %s in %s", a.Name, ref)
		err = s.unlessDry(func() error { return delLink(h, a.Index) })
	case stays:
		s.held[id] = true
		return false, nil
	case netns.IsName(ref):
		what = "namespace " + ref
		err = s.unlessDry(func() error { return netns.Delete(ref) })
	default:
		return false, nil
	}
	if err == nil {
		s.found = append(s.found, what)
	}
	return a.Name == "lo", err // the rest goes with it
}

func (s *sweeper) unlessDry(remove func() error) error {
	if s.dry {
		return nil
	}
	return remove()
}

// finish removes what an instance has besides interfaces and namespaces of ends, its lock last.
func (s *sweeper) finish(id string) (found []string, err error) {
	if k := s.kept[id]; k != nil && k.links > 0 || s.held[id] {
		return nil, nil
	}
	_, names, err := recordsOf(s.dir, id, "*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		found = append(found, "record and pins of pair "+name)
	}
	if s.dry {
		return found, nil
	}
	i := s.doomed[id]
	if i == nil {
		if i, err = takeInstance(s.dir, id); err != nil || i == nil {
			return nil, err // a process has adopted it meanwhile
		}
		defer i.file.Close()
	}
	for _, name := range append(names, "") {
		if err := i.removeKept(name); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return found, nil
}
