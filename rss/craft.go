package rss

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// craftTries bounds how many flows Craft looks at for each that it is to find. Even a worker with one bucket of
// MaxTableSize is met 16 times in so many.
const craftTries = 1 << 16

// Craft returns n flows like one that land on a worker of the table. They differ from it, and from
// each other, in the source port, and where that isn't hashed, in the source address.
func Craft(h *Hasher, t *Table, like Tuple, worker, n int) ([]Tuple, error) {
	if worker < 0 || worker >= t.Workers() {
		return nil, fmt.Errorf("craft flows: no worker %d (there are %d, from 0)", worker, t.Workers())
	}
	owns := false
	for i := range t.Size() {
		owns = owns || t.Worker(i) == worker
	}
	if !owns {
		return nil, fmt.Errorf("craft flows: worker %d owns no bucket (give it some by rss set)", worker)
	}
	step, err := varied(h, like)
	if err != nil {
		return nil, fmt.Errorf("craft flows like %s: %w", like, err)
	}
	var found []Tuple
	for tries := 0; len(found) < n && tries < craftTries*n; tries++ {
		hash, err := h.HashTuple(like)
		if err != nil {
			return nil, fmt.Errorf("craft flows: %w", err)
		}
		if t.Worker(t.Bucket(hash)) == worker {
			found = append(found, like)
		}
		if like = step(like); !like.Src.Addr().IsValid() {
			break
		}
	}
	if len(found) < n {
		return found, fmt.Errorf("craft flows: found %d of %d that land on worker %d (ask for fewer, or begin with a lower address)", len(found), n, worker)
	}
	return found, nil
}

// varied returns how to get from one flow to the next that may have another hash.
func varied(h *Hasher, like Tuple) (func(Tuple) Tuple, error) {
	e, err := h.ExplainTuple(like)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.Contains(e.Fields, "f"):
		return nextPort, nil
	case strings.Contains(e.Fields, "s"):
		return nextAddr, nil
	}
	return nil, errors.New("neither source port nor source address is hashed: all such flows land on one worker")
}

// nextPort counts the source port up, and at its end the address.
func nextPort(t Tuple) Tuple {
	if p := t.Src.Port(); p < 65535 {
		t.Src = netip.AddrPortFrom(t.Src.Addr(), p+1)
		return t
	}
	t.Src = netip.AddrPortFrom(t.Src.Addr(), 1024)
	return nextAddr(t)
}

func nextAddr(t Tuple) Tuple {
	t.Src = netip.AddrPortFrom(t.Src.Addr().Next(), t.Src.Port())
	return t
}
