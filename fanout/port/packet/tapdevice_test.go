package packet

import (
	"errors"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/porttest"
)

// tapDevice makes a TAP interface in ns that is up, with a queue of slots frames towards
// whoever reads the descriptor: a far side that is full exactly when it should be.
func tapDevice(t *testing.T, ns *porttest.NS, flags uint16, slots int) (fd, ifindex int) {
	t.Helper()
	const name = "tap"
	err := ns.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return err
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		ifindex = l.Attrs().Index
		if err := netlink.LinkSetTxQLen(l, slots); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
	if errors.Is(err, unix.ENOENT) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip("/dev/net/tun isn't there")
	}
	if err != nil {
		t.Fatal(err)
	}
	porttest.WaitRunning(t, ns, name)
	return fd, ifindex
}

// drainTap reads what is in the TAP's queue.
func drainTap(t *testing.T, fd int) (numbers []int) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return numbers
		}
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, number(buf[:n]))
	}
}
