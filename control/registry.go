package control

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Errors that the API has a status of its own for.
var (
	// ErrRequest says that what was asked makes no sense, whatever there is.
	ErrRequest = errors.New("invalid request")
	// ErrNoPair says that there is no pair of that name.
	ErrNoPair = errors.New("no such pair")
	// ErrConflict says that what was asked doesn't fit what there is now.
	ErrConflict = errors.New("conflict")
	// ErrStopping says that the daemon is going down.
	ErrStopping = errors.New("daemon is stopping")
)

// noPair says that there is no pair of a name, which may be any text.
func noPair(name string) error {
	shown := name
	if quoted := fmt.Sprintf("%.64q", name); name == "" || len(quoted) != len(name)+2 {
		shown = quoted
	}
	return fmt.Errorf("pair %s: %w (see 'epair list')", shown, ErrNoPair)
}

// registry knows the pairs by name, in the order in which they were added.
//
//	slot        pair   its name
//	reserved    nil    is taken; the pair is being created
//	filled      set    is answered for
//	emptied     nil    is taken; the pair is being removed, or couldn't be
//
// Concurrency contract: all methods may be called from any goroutine. No lock is held while anything
// is created, changed or removed, so that questions never wait for that.
type registry struct {
	mu    sync.Mutex // guards slots and the fields of each that say so
	slots []*slot
}

// slot is the place of one pair.
type slot struct {
	name string
	busy bool  // guarded by registry.mu: somebody changes or removes the pair
	left *pair // guarded by registry.mu: what could not be removed

	mu   sync.RWMutex // read-held while the pair is asked, so that it isn't closed meanwhile
	pair *pair
}

// reserve takes names for pairs that are about to be created. All or none.
func (r *registry) reserve(names []string) ([]*slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := make([]*slot, len(names))
	for i, n := range names {
		if r.find(n) != nil {
			return nil, fmt.Errorf("add pair %s: %w: a pair has this name (choose another, or delete that pair first)", n, ErrConflict)
		}
		added[i] = &slot{name: n, busy: true}
	}
	r.slots = append(r.slots, added...)
	return added, nil
}

// find returns the slot of that name, or nil. r.mu is held.
func (r *registry) find(name string) *slot {
	for _, s := range r.slots {
		if s.name == name {
			return s
		}
	}
	return nil
}

// take gives the caller alone the right to change or remove the pairs of these names, until done or
// free. All or none. leftover also takes what couldn't be removed.
func (r *registry) take(names []string, leftover bool) ([]*slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []*slot
	for _, n := range names {
		s := r.find(n)
		if s == nil || s.get() == nil && (!leftover || s.left == nil) && !s.busy {
			return nil, noPair(n)
		}
		if s.busy {
			return nil, fmt.Errorf("pair %s: %w: another call creates, changes or deletes it (ask again)", n, ErrConflict)
		}
		taken = append(taken, s)
	}
	for _, s := range taken {
		s.busy = true
	}
	return taken, nil
}

// done ends take.
func (r *registry) done(slots []*slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slots {
		s.busy = false
	}
}

// free gives names back.
func (r *registry) free(slots []*slot) {
	gone := make(map[*slot]bool, len(slots))
	for _, s := range slots {
		gone[s] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = slices.DeleteFunc(r.slots, func(s *slot) bool { return gone[s] })
}

// keep notes that a pair, which nobody is answered for any more, couldn't be removed.
func (r *registry) keep(s *slot, p *pair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.left = p
}

// all returns the slots that there are now.
func (r *registry) all() []*slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.slots)
}

// get returns the slot's pair; nil while there is none.
func (s *slot) get() *pair {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pair
}

// put fills or empties the slot. When it returns, nobody asks what was in it.
func (s *slot) put(p *pair) (old *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.pair = s.pair, p
	return old
}

// ask calls f with the pair, which isn't closed meanwhile; ok is false if there is none.
func (s *slot) ask(f func(*pair)) (ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.pair != nil {
		f(s.pair)
	}
	return s.pair != nil
}
