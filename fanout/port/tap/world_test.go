package tap

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// What a queue may hand over unfinished (linux/if_tun.h).
const (
	offCsum   = 0x01
	offTSO4   = 0x02
	offTSO6   = 0x04
	offTSOECN = 0x08
	offUSO4   = 0x20
	offUSO6   = 0x40
	offloads  = offCsum | offTSO4 | offTSO6 | offTSOECN | offUSO4 | offUSO6
)

// device is a TAP in a namespace of its own.
type device struct {
	fd   int
	ns   *porttest.NS
	name string
}

// newTAP makes a TAP. An open queue holds the namespace it was opened in (sk_alloc in
// tun_chr_open), so it is opened in one and the device moved to another, which then can be deleted.
func newTAP(t testing.TB, name string, mtu int) *device {
	t.Helper()
	d := &device{ns: porttest.NewNS(t), name: name}
	birth := porttest.NewNS(t)
	err := birth.Do(func() (err error) {
		if d.fd, err = openQueue(name); err != nil {
			return err
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
	t.Cleanup(func() { unix.Close(d.fd) })
	if err := porttest.SetLink(d.ns, name, true); err != nil {
		t.Fatal(err)
	}
	porttest.WaitRunning(t, d.ns, name)
	return d
}

func openQueue(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, closing(fd, err)
	}
	req.SetUint16(features | unix.IFF_MULTI_QUEUE)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, closing(fd, fmt.Errorf("attach queue: %w", err))
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
		return -1, closing(fd, fmt.Errorf("set offloads: %w", err))
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, port.VNetHdrLen); err != nil {
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
