package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// A persistent pair goes on without its process. It is an instance of its own, whose lock is held by the process that looks
// after it, and free in between; all that is its own has that UUID:
//
//	run directory   UUID.lock, UUID.NAME.json: its record
//	ifalias         of its interfaces: epair:UUID:NAME:a|b
//	namespace       of its outer sides: a named one, as the private one would end with the process; tagged
//	BPF directory   /sys/fs/bpf/epair/UUID: links and maps
//
// Until its record says that it's ready, and from when it's being deleted, it is an orphan like others when the process is killed.
type kept struct {
	inst  *instance
	found bool // it was there, and isn't this process's to remove for an error

	mu    sync.Mutex // guards what follows
	rec   record
	space *netns.NS // of the outer sides, while there is one
}

// keepName is what the namespace of a persistent pair's outer sides is called.
func keepName(id string) string { return "epair-" + id }

// findKept finds what a process left of a persistent pair, and takes its lock. It returns nil if there is nothing, or
// another process looks after it. It must have the name, and an end at the same place: another daemon's pair may have the name, too.
func (e *Env) findKept(c *PairConfig) (*kept, error) {
	ids, _, err := recordsOf(e.inst.dir, "*", c.Name)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		rec, err := readRecord(e.inst.dir, id, c.Name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !rec.meets(c) {
			continue
		}
		if err != nil {
			return nil, err
		}
		i, err := takeInstance(e.inst.dir, id)
		if err != nil {
			return nil, err
		}
		if i == nil {
			continue
		}
		rec, err = readRecord(i.dir, id, c.Name) // again: its process may have changed it, or removed it all
		if errors.Is(err, fs.ErrNotExist) {
			if err := i.file.Close(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, errors.Join(err, i.file.Close())
		}
		return &kept{inst: i, rec: *rec, found: true}, nil
	}
	return nil, nil
}

// takeInstance takes the lock of an instance that has ended. It returns nil if that lives.
func takeInstance(dir, id string) (*instance, error) {
	i := &instance{id: id, dir: dir}
	f, err := os.OpenFile(i.path(id), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over instance: %w", err)
	}
	const tries = 5 // others hold it for a moment to test it
	for range tries {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, f.Close()
	}
	there := false
	if err == nil {
		there, err = stillNamed(f)
	}
	if err != nil || !there {
		return nil, errors.Join(err, f.Close())
	}
	i.file = f
	return i, nil
}

// openKept finds what there is of a persistent pair, or begins one. If the pair isn't to be persistent, what there is is removed.
func (p *Pair) openKept() error {
	if err := p.env.step("open record"); err != nil {
		return err
	}
	k, err := p.env.findKept(&p.cfg)
	switch {
	case err != nil:
		return err
	case k == nil && p.cfg.Persist:
		return p.beginKept()
	case k == nil:
		return nil
	case p.cfg.Persist:
		p.kept = k
		p.own(k.inst)
		return nil
	}
	p.replaced = "re-created: it was persistent, and isn't to be any more"
	return errors.Join(k.inst.wipe(p.cfg.Name), k.close())
}

// beginKept makes what a new persistent pair is known by.
func (p *Pair) beginKept() error {
	i, err := newInstance(p.env.inst.dir)
	if err != nil {
		return err
	}
	p.kept = &kept{inst: i, rec: record{Format: recordFormat, Pair: p.cfg}}
	p.own(i)
	if err := p.kept.rec.write(i.dir, i.id); err != nil {
		return err
	}
	return makePins(i.id)
}

// own makes an instance that of all that is created for the pair.
func (p *Pair) own(i *instance) {
	for _, e := range p.ends() {
		e.inst = i
	}
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	p.env.mine[i.id] = true
}

// adopt makes the ends that there are the pair's. If they aren't what the configuration wants, or not whole, they are removed, for others
// to be created.
func (p *Pair) adopt() (ok bool, err error) {
	if p.kept == nil || !p.kept.found {
		return false, nil
	}
	why := p.kept.rec.refuse(&p.cfg)
	if why == nil {
		why = p.reattach()
	}
	switch {
	case why == nil:
		return true, nil
	case errors.Is(why, errUnfit), errors.Is(why, errNoLink), errors.Is(why, netns.ErrNotExist):
		return false, p.renew(why)
	}
	return false, fmt.Errorf("adopt it: %w", why)
}

// refuse tells why what was recorded can't be the pair.
func (r *record) refuse(c *PairConfig) error {
	if !r.Ready {
		return fmt.Errorf("%w: a process was killed while it made or removed it", errUnfit)
	}
	if key := r.differs(c); key != "" {
		return fmt.Errorf("%w: %s is another now", errUnfit, key)
	}
	return nil
}

// errUnfit says that what was left can't be adopted.
var errUnfit = errors.New("what was left doesn't fit")

// reattach finds the interfaces that were recorded, and makes sure that they are ours.
func (p *Pair) reattach() error {
	rec := &p.kept.rec
	for i, e := range p.ends() {
		if e.cfg.Kind == Dev {
			if e.innerIndex != rec.Inner[i] {
				return fmt.Errorf("%w: %s isn't the interface that it was", errUnfit, e.label())
			}
			continue
		}
		e.innerIndex, e.portIndex, e.mtu = rec.Inner[i], rec.Outer[i], p.cfg.MTU
		if err := e.setMAC(); err != nil {
			return err
		}
		if !p.direct() {
			if err := p.findOuter(e, p.ends()[1-i]); err != nil {
				return err
			}
		} else if err := e.identify(); err != nil {
			return err
		}
		if err := e.inside(func(*netns.NS, *netlink.Handle) error { return nil }); err != nil {
			return fmt.Errorf("%s: %w", e.label(), err)
		}
	}
	return nil
}

// findOuter finds a veth's outer side.
func (p *Pair) findOuter(e, far *End) error {
	if err := p.placeOuter(e, far, false); err != nil {
		return err
	}
	return e.outside(func(h *netlink.Handle) error {
		l, err := h.LinkByIndex(e.portIndex)
		if missing(err) || err == nil && l.Attrs().Alias != e.tag() {
			return fmt.Errorf("outer side of %s: %w", e.label(), errNoLink)
		}
		return err
	})
}

// renew removes what was found, and begins a new one.
func (p *Pair) renew(why error) error {
	if err := p.kept.inst.wipe(p.cfg.Name); err != nil {
		return fmt.Errorf("remove what was left of it: %w", err)
	}
	if err := p.kept.close(); err != nil {
		return err
	}
	for _, e := range p.ends() {
		if e.cfg.Kind != Dev {
			e.innerIndex, e.portIndex, e.nsid = 0, 0, 0
		}
	}
	p.replaced = "re-created: " + why.Error()
	return p.beginKept()
}

// placeOuter says where the outer side of a veth belongs: to the far end that tc stitches it with, if that is a dev; to
// the pair's own namespace, if the pair is persistent, which is made if it may be; else to the private one.
func (p *Pair) placeOuter(e, far *End, make bool) (err error) {
	switch {
	case p.cfg.Datapath == "tc" && far.cfg.Kind == Dev:
		e.outerNS = far.devNS
	case p.kept != nil:
		e.outerNS, err = p.kept.outerSpace(make)
	}
	return err
}

// outerSpace opens the namespace of the pair's outer sides.
func (k *kept) outerSpace(make bool) (*netns.NS, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.space != nil {
		return k.space, nil
	}
	var err error
	if make {
		k.space, err = k.makeSpace()
		return k.space, err
	}
	ns, err := netns.Open(keepName(k.inst.id))
	if err != nil {
		return nil, err
	}
	ours := false
	err = withLo(ns, func(_ *netlink.Handle, lo netlink.Link) error {
		ours = lo.Attrs().Alias == k.inst.spaceTag()
		return nil
	})
	if err == nil && !ours {
		err = fmt.Errorf("%w: namespace %s isn't ours", errUnfit, keepName(k.inst.id))
	}
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	k.space = ns
	return ns, nil
}

// makeSpace makes it, tagged before it has a name.
func (k *kept) makeSpace() (*netns.NS, error) {
	ns, err := newPrivate()
	if err != nil {
		return nil, err
	}
	err = withLo(ns, func(h *netlink.Handle, lo netlink.Link) error { return h.LinkSetAlias(lo, k.inst.spaceTag()) })
	if err == nil {
		err = ns.Publish(keepName(k.inst.id))
	}
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// close lets go of what the process has of the pair.
func (k *kept) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	if k.space != nil {
		err = k.space.Close()
		k.space = nil
	}
	if k.inst.file != nil {
		err = errors.Join(err, k.inst.file.Close())
		k.inst.file = nil
	}
	return err
}
