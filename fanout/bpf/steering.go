package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/rss"
)

// Steering is a program that puts each frame where its bucket's worker reads:
// into a queue of a TAP, or a socket of a packet fan-out group. It hashes by the
// RSS that made it, and has a table of its own: bucket → index of the queue or socket.
//
// The kernel numbers queues and sockets anew when one leaves (the last one takes
// its place), comes back (at the end) or, sockets only, when the link flaps. SetIndex follows
// at each such event.
type Steering struct {
	prog  *ebpf.Program
	table *Table
}

// NewTapSteering loads the program for a TAP. It needs CAP_BPF and CAP_PERFMON.
func (r *RSS) NewTapSteering(t *rss.Table) (*Steering, error) {
	s, err := r.newSteering(steerProgSteerTap, t)
	return s, explain("load tap steering", err)
}

// NewPacketSteering loads the program for a fan-out group. It needs CAP_BPF and CAP_PERFMON.
func (r *RSS) NewPacketSteering(t *rss.Table) (*Steering, error) {
	s, err := r.newSteering(steerProgSteerPacket, t)
	return s, explain("load packet steering", err)
}

func (r *RSS) newSteering(prog string, t *rss.Table) (*Steering, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, err
	}
	table, err := newTable(spec.Maps[steerMapEpairTable], t)
	if err != nil {
		return nil, err
	}
	p, err := r.load(spec, prog, table)
	if err != nil {
		return nil, errors.Join(err, table.Close())
	}
	return &Steering{prog: p, table: table}, nil
}

// load loads one program of spec.
func (r *RSS) load(spec *ebpf.CollectionSpec, prog string, t *Table) (*ebpf.Program, error) {
	spec.Programs = map[string]*ebpf.ProgramSpec{prog: spec.Programs[prog]}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: r.Maps(t)})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(prog), nil
}

// SetIndex tells where each worker reads: index[worker] is the place of its queue or
// socket. Each bucket changes as one word; nothing does, if it returns an error.
func (s *Steering) SetIndex(t *rss.Table, index []uint32) error { return s.table.Set(t, index) }

// FD is the program's descriptor. borrowed: valid until Close.
func (s *Steering) FD() int { return s.prog.FD() }

// AttachTap makes it the steering program of the TAP that fd is a queue of. It
// stays in force until another replaces it or the TAP goes.
func (s *Steering) AttachTap(fd int) error {
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETSTEERINGEBPF, s.prog.FD()); err != nil {
		return fmt.Errorf("attach tap steering: %w", os.NewSyscallError("ioctl TUNSETSTEERINGEBPF", err))
	}
	return nil
}

// AttachPacket makes it the program of the fan-out group (PACKET_FANOUT_EBPF) that fd is a
// member of. It stays in force until another replaces it or the group goes.
func (s *Steering) AttachPacket(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, s.prog.FD()); err != nil {
		return fmt.Errorf("attach packet steering: %w", os.NewSyscallError("setsockopt PACKET_FANOUT_DATA", err))
	}
	return nil
}

// Close gives program and table up. What it is attached to keeps them. It is idempotent.
func (s *Steering) Close() error { return errors.Join(s.prog.Close(), s.table.Close()) }
