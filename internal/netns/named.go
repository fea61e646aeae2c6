package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create makes a namespace with a name, as `ip netns add` does. The error is
// fs.ErrExist when the name is taken.
func Create(name string) (*NS, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	n, err := NewAnonymous()
	if err != nil {
		return nil, err
	}
	if err := n.Publish(name); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Publish gives the namespace a name, under which others find it and which
// keeps it alive. What must be true of it when they do is set up before. The error
// is fs.ErrExist when the name is taken.
func (n *NS) Publish(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	unlock, err := lockRunDir()
	if err == nil {
		defer unlock()
		err = shareRunDir()
	}
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	path := filepath.Join(RunDir, name)
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	f.Close()
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", n.fd), path, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("create namespace %s: mount it: %w", name, err), os.Remove(path))
	}
	return nil
}

// Delete removes a name. The namespace ends with it unless something else holds it. No such
// name is no error.
func Delete(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	unlock, err := lockRunDir()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	defer unlock()
	path := filepath.Join(RunDir, name)
	err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	// EINVAL: the name is there, but nothing is mounted on it.
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete namespace %s: unmount: %w", name, err)
	}
	err = unix.Unlink(path)
	// EBUSY: somebody who doesn't take our lock has removed it meanwhile, and made another.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	return nil
}

// lockRunDir keeps other processes of ours from changing the directory of names. Otherwise one that deletes a name could hit, in its second step,
// the file of another that has the name by then.
func lockRunDir() (unlock func(), err error) {
	fd, err := unix.Open(RunDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", RunDir, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", RunDir, err), unix.Close(fd))
	}
	return func() { unix.Close(fd) }, nil
}

// shareRunDir makes the directory of names a shared mount, so that a name made or removed in one mount
// namespace is made or removed in all that got a copy of it. Otherwise each
// copy would keep a deleted namespace alive (ip-netns(8) does the same).
func shareRunDir() error {
	share := func() error { return unix.Mount("", RunDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if errors.Is(err, unix.EINVAL) { // not a mount
		if err := unix.Mount(RunDir, RunDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", RunDir, err)
		}
		err = share()
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", RunDir, err)
	}
	return nil
}
