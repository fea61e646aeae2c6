// Package netns opens, makes and removes network namespaces, and runs functions in them on
// threads that can't leak into the wrong one.
//
// A namespace lives as long as something holds it: a process in it, a name (a
// bind mount), a descriptor, or a socket that was opened in it. Hold an NS no
// longer than needed: while it's open, `ip netns del` removes the name but not the namespace.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/sys/unix"
)

// RunDir is where namespaces have their names (ip-netns(8)).
const RunDir = "/run/netns"

// Host is the reference of the namespace that this process runs in.
const Host = "host"

// ErrNotExist says that no namespace of that name, path or process exists.
var ErrNotExist = fs.ErrNotExist

// ErrInvalid says that a reference can't be one.
var ErrInvalid = errors.New("invalid reference")

// ErrNotNetns says that a file is there, but isn't a network namespace.
var ErrNotNetns = errors.New("not a network namespace")

// ID tells namespaces apart while they exist. The kernel may give it again to
// a later one: keep an NS open as long as its ID must mean it.
type ID struct{ Dev, Ino uint64 }

// NS is an open network namespace. All methods may be called from any goroutine.
type NS struct {
	fd   int
	id   ID
	once sync.Once
	err  error
}

// Path returns the file that a reference means: NAME, pid:N, a path (with a
// slash in it), or "host". It doesn't look whether the file exists.
func Path(ref string) (string, error) {
	pid, isPID := strings.CutPrefix(ref, "pid:")
	switch {
	case ref == Host:
		return "/proc/thread-self/ns/net", nil
	case isPID:
		n, err := strconv.ParseUint(pid, 10, 31)
		if err != nil || n == 0 {
			return "", fmt.Errorf("namespace %q: %w (write pid:N with a process id)", ref, ErrInvalid)
		}
		return fmt.Sprintf("/proc/%d/ns/net", n), nil
	case strings.Contains(ref, "/"):
		return filepath.Clean(ref), nil
	}
	if err := CheckName(ref); err != nil {
		return "", err
	}
	return filepath.Join(RunDir, ref), nil
}

// IsName says whether a reference is a name: only those can be created and deleted.
func IsName(ref string) bool {
	return ref != Host && !strings.HasPrefix(ref, "pid:") && !strings.Contains(ref, "/")
}

// CheckName says whether a namespace can be called so.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("namespace: %w (its name is empty)", ErrInvalid)
	case name == "." || name == "..", !IsName(name), strings.ContainsFunc(name, unprintable):
		return fmt.Errorf("namespace %q: %w (can't be a name)", name, ErrInvalid)
	case len(name) > unix.NAME_MAX:
		return fmt.Errorf("namespace %.20q…: %w (longer than %d bytes)", name, ErrInvalid, unix.NAME_MAX)
	}
	return nil
}

// unprintable says whether a rune would break the one line in which a name is shown.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Open opens the namespace that a reference means.
func Open(ref string) (*NS, error) {
	path, err := Path(ref)
	if err != nil {
		return nil, err
	}
	var n *NS
	// A goroutine of its own: the caller's thread may be inside some namespace.
	err = onThread(func() (err error) { n, err = openPath(path); return err })
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", ref, err)
	}
	return n, nil
}

func openPath(path string) (*NS, error) {
	// Something else than a namespace, as a FIFO, may be there: it doesn't make us wait.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return adopt(fd)
}

// adopt checks that fd is a network namespace. It owns fd, also when it fails.
func adopt(fd int) (*NS, error) {
	typ, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	switch {
	case err != nil && !errors.Is(err, unix.ENOTTY):
		return nil, errors.Join(fmt.Errorf("read type of namespace: %w", err), unix.Close(fd))
	case err != nil || typ != unix.CLONE_NEWNET:
		return nil, errors.Join(fmt.Errorf("%w (a name whose namespace is gone? ip netns del removes it)", ErrNotNetns), unix.Close(fd))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("identify namespace: %w", err), unix.Close(fd))
	}
	return &NS{fd: fd, id: ID{st.Dev, st.Ino}}, nil
}

// NewAnonymous makes a namespace without a name. It ends when it's closed and
// nothing else holds it; so it can't outlive this process.
func NewAnonymous() (*NS, error) {
	var n *NS
	err := onThread(func() error {
		return within(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error {
			fd, err := openSelf()
			if err != nil {
				return err
			}
			n, err = adopt(fd)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	return n, nil
}

// FD is the namespace's descriptor. borrowed: valid until Close.
func (n *NS) FD() int { return n.fd }

// ID is what tells the namespace from others.
func (n *NS) ID() ID { return n.id }

// Is says whether both are the same namespace.
func (n *NS) Is(o *NS) bool { return n.id == o.id }

// Do runs fn inside the namespace; see the function Do.
func (n *NS) Do(fn func() error) error { return Do(n.fd, fn) }

// Close gives the namespace up. It is idempotent.
func (n *NS) Close() error {
	n.once.Do(func() {
		if err := unix.Close(n.fd); err != nil {
			n.err = os.NewSyscallError("close namespace", err)
		}
	})
	return n.err
}
