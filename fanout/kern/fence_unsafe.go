package kern

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words is the memory of an array map, shared with the programs.
type words struct{ b []byte }

// mapWords maps the n words of a map made with BPF_F_MMAPABLE.
func mapWords(fd, n int) (*words, error) {
	b, err := unix.Mmap(fd, 0, n*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &words{b}, nil
}

// at returns word i.
func (w *words) at(i int) *atomic.Uint64 {
	// Valid: the slice bounds the access to the mapping, which starts at a page, so
	// word i is aligned; the mapping isn't Go memory and stays until unmap.
	return (*atomic.Uint64)(unsafe.Pointer(&w.b[i*8 : i*8+8][0]))
}

func (w *words) unmap() error { return unix.Munmap(w.b) }
