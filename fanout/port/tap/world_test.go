package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// offloads is what the kernel may leave unfinished.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN | unix.TUN_F_USO4 | unix.TUN_F_USO6

// device is a TAP in a namespace of its own.
type device struct {
	fd   int
	more []int // further queues, detached
	ns   *porttest.NS
	name string
}

// newTAP makes a TAP. An open queue holds the namespace it was opened in (sk_alloc in
// tun_chr_open), so it is opened in one and the device moved to another, which then can be deleted.
func newTAP(t testing.TB, name string, mtu int) *device { return newQueues(t, name, mtu, 1) }

// newQueues makes one of several queues.
func newQueues(t testing.TB, name string, mtu, queues int) *device {
	t.Helper()
	d := &device{ns: porttest.NewNS(t), name: name}
	birth := porttest.NewNS(t)
	err := birth.Do(func() (err error) {
		const flags = kind | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE
		if d.fd, err = openQueue(name, flags, port.VNetHdrLen); err != nil {
			return err
		}
		for range queues - 1 {
			fd, err := openQueue(name, flags, port.VNetHdrLen)
			if err != nil {
				return err
			}
			t.Cleanup(func() { closeOnce(&fd) })
			if err := setQueue(fd, unix.IFF_DETACH_QUEUE); err != nil {
				return err
			}
			d.more = append(d.more, fd)
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMTU(l, mtu), netlink.LinkSetNsFd(l, d.ns.FD()))
	})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	t.Cleanup(func() { closeOnce(&d.fd) })
	if err := porttest.SetLink(d.ns, name, true); err != nil {
		t.Fatal(err)
	}
	porttest.WaitRunning(t, d.ns, name)
	return d
}

// openQueue opens the first queue of a new device in the thread's namespace.
func openQueue(name string, flags uint16, hdr int) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, closing(fd, err)
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, closing(fd, fmt.Errorf("attach queue: %w", err))
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
		return -1, closing(fd, fmt.Errorf("set offloads: %w", err))
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, hdr); err != nil {
		return -1, closing(fd, fmt.Errorf("set header size: %w", err))
	}
	return fd, nil
}

// open opens both halves for one worker.
func (d *device) open(t testing.TB, w port.Worker, mtu int) (port.Rx, port.Tx) {
	t.Helper()
	e, err := New(d.fd, mtu)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := e.OpenRx(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rx.Close() })
	tx, err := e.OpenTx(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Close() })
	return rx, tx
}

// far opens the far side of a device.
func (d *device) far(t testing.TB) *porttest.PacketFar {
	t.Helper()
	f, err := porttest.DialFar(d.ns, d.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// numbered returns a frame of a local experiment that says who sent it as which, and whose
// payload follows from that.
func numbered(writer byte, seq uint32, size int) []byte {
	f := make([]byte, size)
	f[0], f[1] = 2, writer
	binary.BigEndian.PutUint32(f[2:], seq)
	f[6] = 2
	binary.BigEndian.PutUint16(f[12:], 0x88b5)
	for i := ethHdrLen; i < size; i++ {
		f[i] = byte(seq>>(i%3*8)) + byte(i) + writer
	}
	return f
}

// numberOf reads what numbered wrote.
func numberOf(f []byte) (writer byte, seq uint32) { return f[1], binary.BigEndian.Uint32(f[2:]) }

func setMTU(t testing.TB, ns *porttest.NS, ifname string, mtu int) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := netlink.LinkByName(ifname)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, mtu)
	})
	if err != nil {
		t.Fatalf("set mtu of %s: %v", ifname, err)
	}
}
