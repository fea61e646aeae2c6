package skb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/internal/netns"
)

// drain tells when frames that wait in the CPUs' backlogs have been handled. A backlog is first in, first out, for
// all devices: a frame that is sent through the loopback of a namespace made for it, whose RPS mask
// is one CPU, comes out when all that was in that CPU's backlog has.
//
// Concurrency contract: all methods may be called from any goroutine.
type drain struct {
	ns   *netns.NS
	lo   *mask
	sock int

	mu     sync.Mutex // held while lo's mask is ours; guards what follows
	number uint64     // of the last marker
}

// drainKey is what crossings of a policy share their drain by.
type drainKey struct{}

// drainOf returns the policy's drain.
func drainOf(p *kern.Policy) (*drain, error) {
	d, err := p.Shared(drainKey{}, func() (io.Closer, error) { return newDrain() })
	if err != nil {
		return nil, err
	}
	return d.(*drain), nil
}

// newDrain makes the namespace. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
func newDrain() (*drain, error) {
	d := &drain{sock: -1}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch backlogs: %w", err), d.Close())
	}
	return d, nil
}

func (d *drain) open() (err error) {
	if d.ns, err = netns.NewAnonymous(); err != nil {
		return err
	}
	sys, err := openSysfs(d.ns.FD())
	if err != nil {
		return err
	}
	defer sys.close()
	if d.lo, err = openMask(sys, kern.Device{Name: "lo"}); err != nil {
		return err
	}
	return d.ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		return d.openSocket()
	})
}

// usable finds the CPUs that RPS may use: those online and not isolated.
func (d *drain) usable() ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writeAll()
}

// writeAll lets RPS use all CPUs, and returns those that it does use.
func (d *drain) writeAll() ([]int, error) {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if err := d.lo.set(formatMask(all)); err != nil {
		return nil, err
	}
	text, err := d.lo.sets[0].read()
	if err != nil {
		return nil, err
	}
	return parseMask(string(text))
}

// openSocket makes a socket that talks to itself.
func (d *drain) openSocket() (err error) {
	d.sock, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(d.sock, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	addr, err := unix.Getsockname(d.sock)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	return os.NewSyscallError("connect", unix.Connect(d.sock, addr))
}

// wait returns when every frame that a program let pass before is out of the backlog: a frame that
// goes through n backlogs one after the other, if it's called with n.
func (d *drain) wait(n int) error {
	if err := quiesce(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	cpus, err := d.writeAll()
	if err != nil {
		return err
	}
	for range n {
		for _, cpu := range cpus {
			if err := d.pass(cpu); err != nil {
				return fmt.Errorf("wait for backlog of cpu %d: %w", cpu, err)
			}
		}
	}
	return nil
}

// Settle returns when every CPU's backlog has let out what was in it when Settle was called, and every softirq of the network
// that ran then has ended. A NAPI that was scheduled then, and has no thread, has been polled at least once.
func Settle(p *kern.Policy) error {
	d, err := drainOf(p)
	if err == nil {
		err = d.wait(1)
	}
	if err != nil {
		return fmt.Errorf("wait for what is on its way: %w", err)
	}
	return nil
}

// Drain implements kern.Crossing.
func (c *crossing) Drain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("drain %s: %w", c.name, os.ErrClosed)
	}
	if c.mode != kern.Pool {
		return nil
	}
	d, err := drainOf(c.policy)
	if err == nil {
		err = d.wait(c.hops)
	}
	if err != nil {
		return fmt.Errorf("drain %s: %w", c.name, err)
	}
	return nil
}

// pass returns when a marker has gone through a CPU's backlog. One that is full loses markers too.
func (d *drain) pass(cpu int) error {
	const (
		again    = 5 // ms
		patience = 20 * time.Second
	)
	if err := d.lo.set(formatMask([]int{cpu})); err != nil {
		return err
	}
	d.number++
	marker := binary.NativeEndian.AppendUint64(nil, d.number)
	p := []unix.PollFd{{Fd: int32(d.sock), Events: unix.POLLIN}}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := unix.Write(d.sock, marker); err != nil {
			return os.NewSyscallError("write", err)
		}
		if _, err := unix.Poll(p, again); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if d.came(marker) {
			return nil
		}
	}
	return fmt.Errorf("no marker passes in %v: %w", patience, os.ErrDeadlineExceeded)
}

// came says whether the marker is among those that have come. Others were late.
func (d *drain) came(marker []byte) bool {
	buf := make([]byte, len(marker))
	for {
		n, err := unix.Read(d.sock, buf)
		if err != nil {
			return false // EAGAIN
		}
		if bytes.Equal(buf[:n], marker) {
			return true
		}
	}
}

// Close gives the namespace up.
func (d *drain) Close() error {
	var errs []error
	if d.sock >= 0 {
		errs = append(errs, unix.Close(d.sock))
		d.sock = -1
	}
	if d.lo != nil {
		errs = append(errs, d.lo.close())
	}
	if d.ns != nil {
		errs = append(errs, d.ns.Close())
	}
	return errors.Join(errs...)
}

// quiesce returns when every program that runs has ended, and the frame it saw is in the
// next queue: they run in an RCU read section with what follows them. The kernel waits for those (an RCU grace period)
// after a map in a map has changed (maybe_wait_bpf_programs, kernel/bpf/syscall.c).
func quiesce() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return fmt.Errorf("wait for programs: %w", kern.Explain(err))
	}
	defer outer.Close()
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return fmt.Errorf("wait for programs: %w", kern.Explain(err))
	}
	defer m.Close()
	return outer.Put(uint32(0), m)
}
