package kern

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// shared is what the crossings of one policy have in common: the workers of a datapath, say.
type shared struct {
	mu     sync.Mutex
	closed bool
	byKey  map[any]io.Closer
}

// Shared returns what was made under a key (of a type of the caller's own, as with context.Context): by the
// first call, or before. The policy closes it; crossings are to be closed first.
func (p *Policy) Shared(key any, make func() (io.Closer, error)) (io.Closer, error) {
	s := &p.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("share among crossings: policy: %w", os.ErrClosed)
	}
	if c := s.byKey[key]; c != nil {
		return c, nil
	}
	c, err := make()
	if err != nil {
		return nil, err
	}
	if s.byKey == nil {
		s.byKey = map[any]io.Closer{}
	}
	s.byKey[key] = c
	return c, nil
}

// close closes all of it, once.
func (s *shared) close() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, c := range s.byKey {
		errs = append(errs, c.Close())
	}
	s.closed, s.byKey = true, nil
	return errs
}
