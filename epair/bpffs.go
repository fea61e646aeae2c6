package epair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
)

// bpfDir is where pins outlive a process: a directory in a BPF file system, where each persistent pair has
// its own, by its UUID.
const bpfDir = "/sys/fs/bpf"

func pinDir(id string) string { return filepath.Join(bpfDir, "epair", id) }

// makePins makes the directory of a pair's pins, and mounts the file system if nobody has.
func makePins(id string) error {
	const cure = "(mount -t bpf bpf " + bpfDir + ")"
	is, err := isBPF()
	if err != nil {
		return fmt.Errorf("look for a BPF file system: %w %s", err, cure)
	}
	if !is {
		if err := unix.Mount("bpf", bpfDir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
			return fmt.Errorf("mount a BPF file system at %s: %w %s", bpfDir, caps.Explain(err, caps.SysAdmin), cure)
		}
	}
	const tries = 3 // removePins of another pair may take the parent away
	for range tries {
		if err = os.MkdirAll(pinDir(id), 0o700); err == nil {
			return nil
		}
	}
	return fmt.Errorf("make place for pins: %w", err)
}

func isBPF() (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(bpfDir, &st)
	return err == nil && st.Type == unix.BPF_FS_MAGIC, err
}

// removePins removes all pins of a pair. None is fine.
func removePins(id string) error {
	if is, err := isBPF(); err != nil || !is {
		return nil // so there are none
	}
	if err := os.RemoveAll(pinDir(id)); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	// The parent goes with the last pair; it doesn't while others have something in it.
	if err := unix.Rmdir(filepath.Dir(pinDir(id))); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove place of pins: %w", err)
	}
	return nil
}
