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

// A frame must arrive at the queue or socket of its bucket's worker, whatever its form.
func TestSteering(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*lab, *rss.Table) (send, ring sender, fds []int, s *Steering)
	}{{"tap", tapGroup}, {"packet", incoming}, {"packet/outgoing", outgoing}} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			table := mustTable(t, "weight 3 1 2 2", 0, readers)
			send, ring, fds, s := c.make(l, table)
			steered(t, table, send, fds, s, []uint32{0, 1, 2, 3})
			steered(t, table, ring, fds, s, []uint32{2, 0, 3, 1})
		})
	}
}

// steered sends frames one by one, with worker w reading the queue or socket at index[w].
func steered(t *testing.T, table *rss.Table, send sender, fds []int, s *Steering, index []uint32) {
	t.Helper()
	if err := s.SetIndex(table, index); err != nil {
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
		want := index[table.Worker(table.Bucket(h.Hash(f)))]
		if err != nil || got != int(want) {
			t.Fatalf("frame came to index %d (%v), want %d\nframe %x\nrss: %+v", got, err, want, f, h.Explain(f))
		}
	}
}

// tapGroup makes a TAP of several queues.
func tapGroup(l *lab, table *rss.Table) (sender, sender, []int, *Steering) {
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
	t.Cleanup(func() { closeAll(fds) })
	if err := s.AttachTap(fds[0]); err != nil {
		t.Fatal(err)
	}
	return l.plain(ifindex), l.ring(ifindex), fds, s
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
func incoming(l *lab, table *rss.Table) (sender, sender, []int, *Steering) {
	near, far := l.veth(1500)
	return packetGroup(l, table, near, far)
}

// outgoing makes one that sees what its own end sends.
func outgoing(l *lab, table *rss.Table) (sender, sender, []int, *Steering) {
	near, _ := l.veth(1500)
	return packetGroup(l, table, near, near)
}

func packetGroup(l *lab, table *rss.Table, send, receive int) (sender, sender, []int, *Steering) {
	t := l.t
	r := mustRSS(t, anyway(t), table)
	s, err := r.NewPacketSteering(table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var fds []int
	group := 0
	for i := range readers {
		fd := l.socket(receive, unix.ETH_P_ALL)
		arg := group | unix.PACKET_FANOUT_EBPF<<16
		if i == 0 {
			arg |= unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
			t.Fatal(fmt.Errorf("join group: %w", err))
		}
		if group, err = unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT); err != nil {
			t.Fatal(err)
		}
		group &= 0xffff
		fds = append(fds, fd)
	}
	if err := s.AttachPacket(fds[0]); err != nil {
		t.Fatal(err)
	}
	return l.plain(send), l.ring(send), fds, s
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
