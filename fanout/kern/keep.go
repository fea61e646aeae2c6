package kern

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// Keep is what lets a crossing outlive the process that made it: its links and maps have names in a BPF file
// system, and what else must be known to take it over is saved.
type Keep struct {
	Dir  string             // of this crossing alone
	Was  []byte             // what was last saved, maybe by another process; nil: the crossing is new
	Save func([]byte) error // replaces it, whole or not at all
}

// KeepLayout is what maps mean that processes hand over to each other: their structs, the fence's rules, what a frame
// carries. It grows when that changes, and what an older process left isn't taken over then.
const KeepLayout = 1

// NewMap makes a map. With k it has a name, and is the map that has it already, if that is alike: else the error is
// ebpf.ErrMapIncompatible.
func (k *Keep) NewMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if k == nil {
		return ebpf.NewMap(spec)
	}
	s := spec.Copy()
	s.Pinning = ebpf.PinByName
	return ebpf.NewMapWithOptions(s, ebpf.MapOptions{PinPath: k.Dir})
}

// Pin is the path of a name.
func (k *Keep) Pin(name string) string { return filepath.Join(k.Dir, name) }

// Clear removes all names but some. A link without a name ends when nobody has it open.
func (k *Keep) Clear(but ...string) error {
	files, err := os.ReadDir(k.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pins: %w", err)
	}
	var errs []error
	for _, f := range files {
		if !slices.Contains(but, f.Name()) {
			errs = append(errs, os.Remove(k.Pin(f.Name())))
		}
	}
	return errors.Join(errs...)
}
