package sink

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// nextName is how epair calls the slot behind an XDP program of its own (fanout/kern/xdp): a program array of
// one entry.
const nextName = "epair_next"

// slot is the place behind another's XDP program on an interface.
type slot struct{ next *ebpf.Map }

// behind puts a program behind the XDP program of an interface. taken is false when there is none on it. It runs
// in the interface's namespace.
func behind(index int, p *ebpf.Program) (s *slot, taken bool, err error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil || l.Attrs().Xdp == nil || !l.Attrs().Xdp.Attached {
		return nil, false, err
	}
	m, err := nextOf(ebpf.ProgramID(l.Attrs().Xdp.ProgId))
	if err != nil {
		return nil, true, err
	}
	var id uint32
	if err = m.Lookup(uint32(0), &id); err == nil {
		err = fmt.Errorf("program %d is behind the one on the interface already", id)
	} else if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = m.Put(uint32(0), p)
	}
	if err != nil {
		return nil, true, errors.Join(err, m.Close())
	}
	return &slot{m}, true, nil
}

// nextOf returns the slot behind a program.
func nextOf(id ebpf.ProgramID) (*ebpf.Map, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	maps, _ := info.MapIDs()
	for _, id := range maps {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if i, err := m.Info(); err == nil && i.Name == nextName && m.Type() == ebpf.ProgramArray {
			return m, nil
		}
		m.Close()
	}
	return nil, fmt.Errorf("program %q is on it, behind which there is no place for another", info.Name)
}

// Close empties the slot. It may have gone with its crossing.
func (s *slot) Close() error {
	err := s.next.Delete(uint32(0))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return errors.Join(err, s.next.Close())
}
