package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
	"github.com/epair-net/epair/rss"
)

// lab is a network namespace with one pair of interfaces, or a TAP, that nothing else uses:
//
//	sender ──▶ s ═══ d ──▶ watched      sender ──▶ tap ──▶ queues
type lab struct {
	t  *testing.T
	ns *netns.NS
}

func newLab(t *testing.T) *lab {
	t.Helper()
	needBPF(t)
	ns, err := netns.NewAnonymous()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return &lab{t, ns}
}

// do runs fn inside the namespace.
func (l *lab) do(fn func() error) {
	l.t.Helper()
	if err := l.ns.Do(fn); err != nil {
		l.t.Fatal(err)
	}
}

// silence keeps the kernel from sending anything by itself on interfaces to come.
func silence() error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
}

// veth makes the pair and returns the indices of s and d.
func (l *lab) veth(mtu int) (s, d int) {
	l.do(func() error {
		if err := silence(); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "s", mtu
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "d"}); err != nil {
			return err
		}
		var err error
		if s, err = up("s"); err == nil {
			d, err = up("d")
		}
		return errors.Join(err, awaitUp("s"), awaitUp("d"))
	})
	return s, d
}

func up(name string) (int, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	if err := netlink.LinkSetARPOff(dev); err != nil {
		return 0, err
	}
	return dev.Attrs().Index, netlink.LinkSetUp(dev)
}

// socket opens a packet socket on an interface that is closed with the test.
func (l *lab) socket(ifindex, proto int) (fd int) {
	l.do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: htons(proto)})
	})
	l.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func htons(v int) uint16 { return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)}) }

// sender sends one frame.
type sender func(frame []byte) error

// plain sends frames whose bytes are linear.
func (l *lab) plain(ifindex int) sender {
	fd := l.socket(ifindex, 0)
	return func(frame []byte) error {
		_, err := unix.Write(fd, frame)
		return err
	}
}

// ring sends by a TPACKET_V2 ring: of each frame only the Ethernet header is linear.
func (l *lab) ring(ifindex int) sender {
	const slot, head = 16384, 32 // head: of what stands before a frame (linux/if_packet.h)
	fd := l.socket(ifindex, 0)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		l.t.Fatal(err)
	}
	req := unix.TpacketReq{Block_size: slot, Block_nr: 1, Frame_size: slot, Frame_nr: 1}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_TX_RING, &req); err != nil {
		l.t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, slot, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { unix.Munmap(mem) })
	return func(frame []byte) error {
		copy(mem[head:], frame)
		binary.NativeEndian.PutUint32(mem[4:], uint32(len(frame)))
		binary.NativeEndian.PutUint32(mem, unix.TP_STATUS_SEND_REQUEST)
		return unix.Send(fd, nil, 0) // synchronous: the slot is free after it
	}
}

// readable returns which one of the descriptors has a frame, and takes it.
func readable(fds []int, buf []byte) (int, error) {
	poll := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		poll[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := unix.Poll(poll, 1000); err != nil && err != unix.EINTR {
			return 0, err
		}
		for i := range poll {
			if poll[i].Revents&unix.POLLIN != 0 {
				_, err := unix.Read(fds[i], buf)
				return i, err
			}
		}
	}
	return 0, fmt.Errorf("no frame came")
}

// flap takes a link down and up, and takes from each packet socket on it the error that says so.
func (l *lab) flap(name string, fds []int) {
	l.do(func() error {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(dev); err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(dev), awaitUp("s"), awaitUp("d"))
	})
	for _, fd := range fds {
		if fd < 0 {
			continue
		}
		if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || syscall.Errno(v) != unix.ENETDOWN {
			l.t.Fatalf("after a flap: %v %v", syscall.Errno(v), err)
		}
	}
}

// awaitUp waits until the kernel has taken note of a link's carrier: only then it sends.
func awaitUp(name string) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		dev, err := netlink.LinkByName(name)
		if err != nil || dev.Attrs().OperState == netlink.OperUp {
			return err
		}
	}
	return fmt.Errorf("link %s doesn't come up", name)
}

// leave closes a socket, but keeps its number from being given away before the test ends.
func (l *lab) leave(fd int) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Dup3(null, fd, unix.O_CLOEXEC), unix.Close(null))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// crosses says whether a frame passes a veth pair of that MTU, which drops those that it can't untag.
func crosses(f []byte, mtu int) bool {
	if len(f) <= etherLen+6 {
		return false
	}
	return len(f) <= mtu+etherLen
}

// anyway is the hash configuration of these tests: everything on.
func anyway(t *testing.T) *rss.Hasher { return mustHasher(t, rss.Config{Symmetric: true, Inner: true}) }
