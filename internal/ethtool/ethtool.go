// Package ethtool reads and sets the offload features of network interfaces, by
// the names that ethtool(8) shows (`ethtool -k`, and the same in NETIF_F_* order in the kernel's
// net/ethtool/common.c).
//
// All calls concern the network namespace of the calling thread. They block as
// long as the kernel's rtnl lock is taken.
package ethtool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Feature is the state of one offload.
type Feature struct {
	On    bool
	Fixed bool // can't be changed on this interface
}

// ErrFixed says that the interface can't change a feature.
var ErrFixed = errors.New("feature is fixed")

// Features returns all offloads of an interface, by name.
func Features(ifname string) (map[string]Feature, error) {
	s, err := open(ifname)
	if err != nil {
		return nil, fmt.Errorf("read features of %s: %w", ifname, err)
	}
	defer s.close()
	f, _, err := s.features()
	if err != nil {
		return nil, fmt.Errorf("read features of %s: %w", ifname, err)
	}
	return f, nil
}

// SetFeatures turns offloads on or off, all in one call. It returns what the features that
// changed were before, so that SetFeatures(ifname, before) puts them back; others, which
// the kernel changed as a consequence, are among them. A name that the kernel doesn't know counts as an
// offload that is off and fixed. When one can't be set, the others are, and
// the error is ErrFixed.
func SetFeatures(ifname string, want map[string]bool) (before map[string]bool, err error) {
	s, err := open(ifname)
	if err != nil {
		return nil, fmt.Errorf("set features of %s: %w", ifname, err)
	}
	defer s.close()
	if before, err = s.set(want); err != nil {
		return before, fmt.Errorf("set features of %s: %w", ifname, err)
	}
	return before, nil
}

func (s *socket) set(want map[string]bool) (map[string]bool, error) {
	old, names, err := s.features()
	if err != nil {
		return nil, err
	}
	blocks := make([]setBlock, (len(names)+31)/32)
	for i, name := range names {
		on, asked := want[name]
		if !asked || old[name].Fixed || name == "" {
			continue
		}
		blocks[i/32].valid |= 1 << (i % 32)
		if on {
			blocks[i/32].requested |= 1 << (i % 32)
		}
	}
	// A positive result says that the kernel didn't do it all; which, the comparison shows.
	if err := s.setFeatures(blocks); err != nil {
		return nil, err
	}
	now, _, err := s.features()
	if err != nil {
		return nil, err
	}
	before := map[string]bool{}
	for name, f := range now {
		if f.On != old[name].On {
			before[name] = old[name].On
		}
	}
	return before, missed(now, want)
}

// missed says which features aren't as wanted.
func missed(now map[string]Feature, want map[string]bool) error {
	var bad []string
	for name, on := range want {
		if now[name].On != on {
			bad = append(bad, name)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fmt.Errorf("%s: %w", strings.Join(bad, ", "), ErrFixed)
}

// features returns the state of all features, and their names by bit number.
func (s *socket) features() (map[string]Feature, []string, error) {
	names, err := s.strings()
	if err != nil {
		return nil, nil, err
	}
	blocks := make([]block, (len(names)+31)/32)
	if err := s.getFeatures(blocks); err != nil {
		return nil, nil, err
	}
	all := make(map[string]Feature, len(names))
	for i, name := range names {
		if name == "" { // a bit that isn't used
			continue
		}
		b, bit := blocks[i/32], uint32(1)<<(i%32)
		all[name] = Feature{
			On:    b.active&bit != 0,
			Fixed: b.available&bit == 0 || b.neverChanged&bit != 0,
		}
	}
	return all, names, nil
}
