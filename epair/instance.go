package epair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
)

// Everything we create is tagged, in its ifalias: a namespace's lo with
// "epair:UUID", an interface with "epair:UUID:PAIR:a|b". The UUID is that of the instance. An
// instance holds a lock on UUID.lock in the run directory as long as its process lives, so that another
// can tell a live object from an orphan:
//
//	lock file  lock   the instance
//	there      held   lives
//	there      free   crashed: its objects are orphans; or it's a persistent pair, which no process looks after
//	not there         ended well, or ran with another run directory: its objects are left alone
type instance struct {
	id   string
	dir  string
	file *os.File
	keep bool // close leaves the lock's file behind: something of ours is left
}

// owner says whose an object is.
type owner int

const (
	foreign  owner = iota // not epair's
	own                   // this instance's
	live                  // that of another instance, which runs
	orphan                // that of an instance that crashed
	unproven              // that of an instance of which nothing is known
)

const tagPrefix = "epair:"

func newInstance(dir string) (*instance, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", caps.Explain(err, caps.DACOverride))
	}
	for {
		i := &instance{id: uuid.NewString(), dir: dir}
		ok, err := i.lock()
		if err != nil {
			return nil, fmt.Errorf("create instance lock: %w", caps.Explain(err, caps.DACOverride))
		}
		if ok {
			return i, nil
		}
	}
}

// lock creates the lock. ok is false if somebody took the file, between its creation and the
// lock, for that of a crashed instance and removed it.
func (i *instance) lock() (ok bool, err error) {
	f, err := os.OpenFile(i.path(i.id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	// Not without waiting: others hold it for a moment to test it.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return false, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	there, err := stillNamed(f)
	if err != nil {
		return false, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	if !there {
		return false, f.Close()
	}
	i.file = f
	return true, nil
}

// stillNamed says whether f still has its name.
func stillNamed(f *os.File) (bool, error) {
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(locked, there), nil
}

func (i *instance) path(id string) string { return filepath.Join(i.dir, id+".lock") }

// close ends the instance.
func (i *instance) close() error {
	var err error
	if !i.keep {
		if err = os.Remove(i.path(i.id)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, i.file.Close())
}

// spaceTag is the tag of a namespace's lo, and how all tags of this instance begin.
func (i *instance) spaceTag() string { return tagPrefix + i.id }

func (i *instance) linkTag(pair string, side byte) string {
	return fmt.Sprintf("%s:%s:%c", i.spaceTag(), pair, side)
}

// tagID returns the instance that a tag names.
func tagID(alias string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(alias, tagPrefix)
	if !ok {
		return "", false
	}
	id, _, _ = strings.Cut(rest, ":")
	u, err := uuid.Parse(id)
	return id, err == nil && u.String() == id // so it's safe as a file's name
}

// owner says whose the object with that ifalias is.
func (i *instance) owner(alias string) (owner, error) {
	id, ok := tagID(alias)
	switch {
	case !ok:
		return foreign, nil
	case id == i.id:
		return own, nil
	}
	f, err := os.Open(i.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return unproven, nil
	}
	if err != nil {
		return foreign, fmt.Errorf("read instance lock: %w", caps.Explain(err, caps.DACOverride))
	}
	defer f.Close()
	// Shared, so that two who look don't take each other for the instance.
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return live, nil
	case err != nil:
		return foreign, fmt.Errorf("test instance lock: %w", err)
	}
	return orphan, nil
}

// dead lists the instances that crashed.
func (i *instance) dead() ([]string, error) {
	names, err := filepath.Glob(filepath.Join(i.dir, "*.lock"))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range names {
		id := strings.TrimSuffix(filepath.Base(n), ".lock")
		o, err := i.owner(tagPrefix + id)
		if err != nil {
			return nil, err
		}
		if o == orphan {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
