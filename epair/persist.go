package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/epair-net/epair/internal/netns"
)

// Persist says whether the pair goes on without the process.
func (p *Pair) Persist() bool { return p.kept != nil }

// Adopted says whether the ends were there, and maybe up and in use.
func (p *Pair) Adopted() bool { return p.kept != nil && p.kept.found }

// Pins is the directory, in a BPF file system, of what is to outlive the process of a persistent pair.
func (p *Pair) Pins() string { return pinDir(p.kept.inst.id) }

// Carrier is what SaveCarrier last saved, maybe in another process; nil: nothing.
func (p *Pair) Carrier() []byte {
	p.kept.mu.Lock()
	defer p.kept.mu.Unlock()
	return p.kept.rec.Carrier
}

// SaveCarrier saves what the next process that has this pair gets by Carrier: JSON.
func (p *Pair) SaveCarrier(data []byte) error {
	return p.kept.save(func(r *record) { r.Carrier = data })
}

// Keep makes a persistent pair stay from now on, whatever becomes of the process: Delete removes it, and GC when it's asked
// to. Before, it's garbage without a process.
func (p *Pair) Keep() error { return p.kept.save(func(r *record) { r.Ready = true }) }

// ready says whether the pair stays when the Env closes.
func (p *Pair) ready() bool {
	if p.kept == nil {
		return false
	}
	p.kept.mu.Lock()
	defer p.kept.mu.Unlock()
	return p.kept.rec.Ready
}

// save changes the record.
func (k *kept) save(change func(*record)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.rec
	change(&next)
	if err := next.write(k.inst.dir, k.inst.id); err != nil {
		return err
	}
	k.rec = next
	return nil
}

// note records the pair as it is. What is ready stays so.
func (p *Pair) note() error {
	if p.kept == nil {
		return nil
	}
	return p.kept.save(func(r *record) {
		r.Pair = p.cfg
		for i, e := range p.ends() {
			r.Inner[i], r.Outer[i] = e.innerIndex, e.portIndex
		}
	})
}

// Leave lets go of a persistent pair that is kept: it goes on, and the next Env that creates it adopts it. It's for the end of a
// process: namespaces that it made stay, too, until that Env is closed.
func (p *Pair) Leave() error {
	if err := p.env.begin(); errors.Is(err, ErrClosed) {
		return nil
	}
	defer p.env.life.RUnlock()
	return p.env.leaveAll([]*Pair{p})
}

func (e *Env) leaveAll(pairs []*Pair) error {
	var errs []error
	for _, p := range pairs {
		if !p.setDeleted(true) {
			continue
		}
		for _, end := range p.ends() {
			e.mon.remove(end)
			end.detachDev()
			errs = append(errs, end.closeSpace())
			if end.leave() {
				e.keepInstance() // its tag is in that namespace
			}
		}
		errs = append(errs, p.kept.close())
		e.publish(p.cfg.Name, nil)
	}
	return errors.Join(errs...)
}

// keepInstance lets the instance's lock stay, so that what it has left is known to be an orphan.
func (e *Env) keepInstance() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inst.keep = true
}

// condemn notes that persistent pairs are being deleted: what a crash leaves of them then is garbage.
func condemn(pairs []*Pair) error {
	var errs []error
	for _, p := range pairs {
		if p.ready() {
			errs = append(errs, p.kept.save(func(r *record) { r.Ready = false }))
		}
	}
	return errors.Join(errs...)
}

// remove removes what isn't an interface, and gives the instance up. It is idempotent.
func (k *kept) remove() error {
	k.mu.Lock()
	gone := k.inst.file == nil
	k.mu.Unlock()
	if gone {
		return nil
	}
	if err := k.inst.removeKept(k.rec.Pair.Name); err != nil {
		return err
	}
	return errors.Join(os.Remove(k.inst.path(k.inst.id)), k.close())
}

// removeKept removes all that a persistent pair has besides interfaces in namespaces of others. The record goes last, but for the lock.
func (i *instance) removeKept(pair string) error {
	if err := errors.Join(i.removeSpace(), removePins(i.id)); err != nil {
		return err
	}
	for _, end := range []string{".new", ""} {
		err := os.Remove(filepath.Join(i.dir, recordName(i.id, pair)+end))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove record: %w", err)
		}
	}
	return nil
}

// removeSpace removes the namespace of outer sides: one with our tag, or a name on which none was mounted.
func (i *instance) removeSpace() error {
	name := keepName(i.id)
	ns, err := netns.Open(name)
	if errors.Is(err, netns.ErrNotExist) {
		return nil
	}
	if errors.Is(err, netns.ErrNotNetns) {
		return netns.Delete(name)
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return deleteTagged(ns, name, i.spaceTag())
}

// looksAfter says whether a tag is that of a persistent pair of this Env.
func (e *Env) looksAfter(alias string) bool {
	id, _ := tagID(alias)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mine[id]
}

// wipe removes all of an instance whose lock is held: its interfaces in all namespaces too.
func (i *instance) wipe(pair string) error {
	s := &sweeper{instance: &instance{dir: i.dir}, doomed: map[string]*instance{i.id: i}, only: i.id}
	if err := s.sweepAll(); err != nil {
		return err
	}
	if err := i.removeKept(pair); err != nil {
		return err
	}
	return os.Remove(i.path(i.id))
}

// keptPair is the name of the persistent pair whose tag that is, or empty if there is none that is ready.
func (i *instance) keptPair(alias string) string {
	id, ok := tagID(alias)
	if !ok {
		return ""
	}
	_, names, err := recordsOf(i.dir, id, "*")
	if err != nil {
		return ""
	}
	for _, name := range names {
		if r, err := readRecord(i.dir, id, name); err == nil && r.Ready {
			return name
		}
	}
	return ""
}

// keptIn says whether a persistent pair that is ready has an interface in a namespace.
func (i *instance) keptIn(ns *netns.NS) (bool, error) {
	if ids, _, err := recordsOf(i.dir, "*", "*"); err != nil || len(ids) == 0 {
		return false, err
	}
	h, err := open(ns)
	if err != nil {
		return false, err
	}
	defer h.Close()
	links, err := allLinks(h)
	if err != nil {
		return false, err
	}
	for _, l := range links {
		if i.keptPair(l.Attrs().Alias) != "" {
			return true, nil
		}
	}
	return false, nil
}
