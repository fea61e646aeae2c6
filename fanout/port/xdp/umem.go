package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// headroom is what the kernel leaves free in front of a received frame (XDP_PACKET_HEADROOM).
const headroom = unix.XDP_PACKET_HEADROOM

// umem is the memory in which a pair's frames are.
type umem struct {
	mem    []byte
	shift  uint // chunk size, as a power of two
	chunks int
	free   pool
	owners owners
	fd     int           // the socket that registered it; -1: none yet
	lost   atomic.Uint64 // chunks that a descriptor of the kernel's named and that aren't there
}

// newUMEM maps memory for a number of chunks.
func newUMEM(chunks, size int) (*umem, error) {
	mem, err := unix.Mmap(-1, 0, chunks*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d frames of %d bytes: %w", chunks, size, err)
	}
	u := &umem{mem: mem, chunks: chunks, fd: -1}
	for 1<<u.shift < size {
		u.shift++
	}
	u.owners.init(chunks)
	u.free.init(chunks)
	return u, nil
}

// size is the size of a chunk.
func (u *umem) size() int { return 1 << u.shift }

// register makes this the UMEM of a socket. All others share that.
func (u *umem) register(fd int) error {
	err := registerUMEM(fd, u.mem, u.size())
	if errors.Is(err, unix.ENOBUFS) { // xdp_umem_account_pages
		return fmt.Errorf("pin %d KiB of frames: over the limit of locked memory (raise it with ulimit -l, or give the process CAP_IPC_LOCK): %w", len(u.mem)>>10, err)
	}
	if err != nil {
		return fmt.Errorf("register %d KiB of frames: %w", len(u.mem)>>10, err)
	}
	u.fd = fd
	return nil
}

// chunk returns the chunk of an address.
func (u *umem) chunk(addr uint64) uint32 { return uint32(addr >> u.shift) }

// holds tells whether n bytes at addr lie within one chunk.
func (u *umem) holds(addr uint64, n uint32) bool {
	return addr < uint64(len(u.mem)) && n > 0 && addr&uint64(u.size()-1)+uint64(n) <= uint64(u.size())
}

// bytes returns n bytes at addr, which holds has approved.
func (u *umem) bytes(addr uint64, n uint32) []byte {
	return u.mem[addr : addr+uint64(n) : addr+uint64(n)]
}

func (u *umem) close() error { return unix.Munmap(u.mem) }
