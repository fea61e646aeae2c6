package skb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// sysfs is /sys as a network namespace has it, mounted nowhere. What is opened in it
// stays usable, and keeps neither device nor namespace alive. It needs CAP_SYS_ADMIN.
type sysfs struct{ fd int }

func openSysfs(ns int) (*sysfs, error) {
	s := &sysfs{-1}
	err := netns.Do(ns, func() error {
		fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return os.NewSyscallError("fsopen", err)
		}
		defer unix.Close(fs)
		if err := unix.FsconfigCreate(fs); err != nil {
			return os.NewSyscallError("fsconfig", err)
		}
		s.fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		return os.NewSyscallError("fsmount", err)
	})
	if err != nil {
		return nil, fmt.Errorf("mount sysfs: %w", caps.Explain(err, caps.SysAdmin))
	}
	return s, nil
}

func (s *sysfs) close() { unix.Close(s.fd) }

// file is an attribute that is held open.
type file struct {
	fd   int
	path string
}

func (s *sysfs) open(path string, flags int) (file, error) {
	fd, err := unix.Openat(s.fd, path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return file{}, fmt.Errorf("open sysfs %s: %w", path, err)
	}
	return file{fd, path}, nil
}

func (f file) close() error { return unix.Close(f.fd) }

func (f file) read() ([]byte, error) {
	buf := make([]byte, 4096) // a page, as long as an attribute can be
	n, err := unix.Pread(f.fd, buf, 0)
	if err != nil {
		return nil, fmt.Errorf("read sysfs %s: %w", f.path, err)
	}
	return bytes.TrimSpace(buf[:n]), nil
}

func (f file) number() (uint64, error) {
	text, err := f.read()
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(text), 10, 64)
}

func (f file) write(text []byte) error {
	if _, err := unix.Pwrite(f.fd, text, 0); err != nil {
		return fmt.Errorf("write sysfs %s: %w", f.path, err)
	}
	return nil
}

// gone says whether an error means that the device doesn't exist any more.
func gone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) }
