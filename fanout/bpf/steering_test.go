package bpf

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/rss"
	"github.com/epair-net/epair/rss/rsstest"
)

const readers = 4

// group is what is steered: queues of a TAP, or sockets of a fan-out group.
type group struct {
	plain, ring sender
	fds         []int // in the order of joining
	*Steering
}

// A frame must arrive at the queue or socket of its bucket's worker, whatever its form.
func TestSteering(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*lab, *rss.Table) group
	}{{"tap", tapGroup}, {"packet", incoming}, {"packet/outgoing", outgoing}} {
		t.Run(c.name, func(t *testing.T) {
			table := mustTable(t, "weight 3 1 2 2", 0, readers)
			g := c.make(newLab(t), table)
			g.steers(t, table, g.plain, []uint32{0, 1, 2, 3}, g.fds)
			g.steers(t, table, g.ring, []uint32{2, 0, 3, 1}, []int{g.fds[2], g.fds[0], g.fds[3], g.fds[1]})
		})
	}
}

// The kernel numbers the rest anew when a queue or socket leaves, as Steering says.
func TestSteeringAfterOneLeaves(t *testing.T) {
	all, rest := mustTable(t, "", 0, readers), mustTable(t, "weight 1 0 1 1", 0, readers)
	t.Run("tap", func(t *testing.T) {
		g := tapGroup(newLab(t), all)
		attach(t, g.fds[1], unix.IFF_DETACH_QUEUE)
		g.steers(t, rest, g.plain, []uint32{0, 0, 2, 1}, g.fds)
		attach(t, g.fds[1], unix.IFF_ATTACH_QUEUE)
		g.steers(t, all, g.plain, []uint32{0, 3, 2, 1}, g.fds)
	})
	t.Run("packet", func(t *testing.T) {
		l := newLab(t)
		near, far := l.veth(1500)
		g := packetGroup(l, all, near, far)
		l.leave(g.fds[1])
		g.fds[1] = -1 // poll passes over it
		g.steers(t, rest, g.plain, []uint32{0, 0, 2, 1}, g.fds)
		l.flap("d", g.fds)
		g.steers(t, rest, g.plain, []uint32{0, 0, 1, 2}, g.fds)
	})
}

func attach(t *testing.T, fd int, how uint16) {
	req, err := unix.NewIfreq("tap")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(how)
	if err := unix.IoctlIfreq(fd, unix.TUNSETQUEUE, req); err != nil {
		t.Fatal(os.NewSyscallError("ioctl TUNSETQUEUE", err))
	}
}

// steers sends frames one by one: worker w has the place index[w] and reads fds[w].
func (g *group) steers(t *testing.T, table *rss.Table, send sender, index []uint32, fds []int) {
	t.Helper()
	if err := g.SetIndex(table, index); err != nil {
		t.Fatal(err)
	}
	h, gen, buf := anyway(t), rsstest.Frames(int64(index[0])), make([]byte, rsstest.MaxFrame)
	for n := 0; n < 1000; {
		f := gen.Next()
		if !crosses(f, 1500) {
			continue
		}
		n++
		if err := send(f); err != nil {
			t.Fatalf("send %x: %v", f, err)
		}
		got, err := readable(fds, buf)
		want := table.Worker(table.Bucket(h.Hash(f)))
		if err != nil || got != want {
			t.Fatalf("frame came to worker %d (%v), want %d\nframe %x\nrss: %+v", got, err, want, f, h.Explain(f))
		}
	}
}

// tapGroup makes a TAP of several queues.
func tapGroup(l *lab, table *rss.Table) group {
	t := l.t
	r := mustRSS(t, anyway(t), table)
	s, err := r.NewTapSteering(table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var fds []int
	ifindex := 0
	l.do(func() (err error) {
		if err := silence(); err != nil {
			return err
		}
		for range readers {
			fd, err := openTap("tap")
			if err != nil {
				return err
			}
			fds = append(fds, fd)
		}
		ifindex, err = up("tap")
		return err
	})
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	if err := s.AttachTap(fds[0]); err != nil {
		t.Fatal(err)
	}
	return group{l.plain(ifindex), l.ring(ifindex), fds, s}
}

func openTap(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("open /dev/net/tun", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE)
	return fd, os.NewSyscallError("ioctl TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
}

// incoming makes a fan-out group at the far end of a veth pair.
func incoming(l *lab, table *rss.Table) group {
	near, far := l.veth(1500)
	return packetGroup(l, table, near, far)
}

// outgoing makes one that sees what its own end sends.
func outgoing(l *lab, table *rss.Table) group {
	near, _ := l.veth(1500)
	return packetGroup(l, table, near, near)
}

func packetGroup(l *lab, table *rss.Table, send, receive int) group {
	t := l.t
	r := mustRSS(t, anyway(t), table)
	s, err := r.NewPacketSteering(table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var fds []int
	id := 0
	for i := range readers {
		fd := l.socket(receive, unix.ETH_P_ALL)
		arg := id | unix.PACKET_FANOUT_EBPF<<16
		if i == 0 {
			arg |= unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
			t.Fatal(fmt.Errorf("join group: %w", err))
		}
		if id, err = unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT); err != nil {
			t.Fatal(err)
		}
		id &= 0xffff
		fds = append(fds, fd)
	}
	if err := s.AttachPacket(fds[0]); err != nil {
		t.Fatal(err)
	}
	return group{l.plain(send), l.ring(send), fds, s}
}
