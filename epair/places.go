package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// places are references to all namespaces in which something of ours may be: the host's, those that have a name, those that the records of
// persistent pairs name otherwise, and those that processes are in. The same may be among them several times: with its name first, by
// which alone it can be removed.
func (s *sweeper) places() ([]string, error) {
	refs := []string{netns.Host}
	names, err := os.ReadDir(netns.RunDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for _, n := range names {
		refs = append(refs, n.Name())
	}
	ids, pairs, err := recordsOf(s.dir, "*", "*")
	if err != nil {
		return nil, err
	}
	for i := range ids {
		r, err := readRecord(s.dir, ids[i], pairs[i])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, c := range []EndConfig{r.Pair.A, r.Pair.B} {
			if c.Netns != "" && !netns.IsName(c.Netns) {
				refs = append(refs, c.Netns)
			}
		}
	}
	return append(refs, inhabited()...), nil
}

// inhabited are the namespaces that processes are in, by one process each. Of those whose namespace we may not look at, nothing is known.
func inhabited() (refs []string) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil // without it no namespace can be opened
	}
	seen := map[netns.ID]bool{}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+p.Name()+"/ns/net", &st) != nil {
			continue
		}
		if id := (netns.ID{Dev: st.Dev, Ino: st.Ino}); !seen[id] {
			seen[id] = true
			refs = append(refs, "pid:"+p.Name())
		}
	}
	return refs
}

// openPlace opens a namespace of places. It returns nil if that isn't one any more, or was swept already.
func (s *sweeper) openPlace(ref string) (*netns.NS, error) {
	ns, err := netns.Open(ref)
	switch {
	case errors.Is(err, netns.ErrNotExist), errors.Is(err, netns.ErrNotNetns):
		return nil, nil
	case err != nil && !netns.IsName(ref) && (errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission)):
		return nil, nil // the process has ended, or isn't ours to look at
	case err != nil:
		return nil, err
	}
	if s.swept[ns.ID()] {
		return nil, ns.Close()
	}
	s.swept[ns.ID()] = true
	return ns, nil
}
