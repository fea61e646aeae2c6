package skb

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
)

// watches are those of a policy's crossings, one for each namespace of outer sides. Each lives as
// long as a crossing there.
type watches struct {
	mu   sync.Mutex
	byNS map[nsID]*watch
}

type nsID struct{ dev, ino uint64 }

// watchesKey is what crossings of a policy share their watches by.
type watchesKey struct{}

func watchesOf(p *kern.Policy) (*watches, error) {
	c, err := p.Shared(watchesKey{}, func() (io.Closer, error) { return &watches{byNS: map[nsID]*watch{}}, nil })
	if err != nil {
		return nil, err
	}
	return c.(*watches), nil
}

// Close implements io.Closer: crossings have closed what there was.
func (*watches) Close() error { return nil }

// add makes m, a map of targets, true and keeps it so until remove.
func (all *watches) add(d kern.Device, m *ebpf.Map, ends [2]*targetEnd) (*targets, error) {
	id, err := idOf(d)
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	w := all.byNS[id]
	if w == nil {
		if w, err = newWatch(d.NetNS); err != nil {
			return nil, fmt.Errorf("watch ends: %w", err)
		}
		all.byNS[id] = w
	}
	t := &targets{w: w, m: m, ends: ends}
	if err := w.add(t); err != nil {
		return nil, errors.Join(fmt.Errorf("watch ends: %w", err), all.drop(t))
	}
	return t, nil
}

func (all *watches) remove(t *targets) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.drop(t)
}

func (all *watches) drop(t *targets) error {
	if !t.w.remove(t) {
		return nil
	}
	for id, w := range all.byNS {
		if w == t.w {
			delete(all.byNS, id)
		}
	}
	return t.w.close()
}

// idOf tells a device's namespace from others, as long as something of it is open.
func idOf(d kern.Device) (nsID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.NetNS, &st); err != nil {
		return nsID{}, fmt.Errorf("identify namespace of %s: %w", d.Name, err)
	}
	return nsID{st.Dev, st.Ino}, nil
}
