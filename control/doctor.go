package control

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/packet"
	"github.com/epair-net/epair/fanout/port/xdp"
	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/cpus"
	"github.com/epair-net/epair/internal/netns"
)

// Check is what a cell of the matrix, or a thing that cells need, came to.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"` // why not
	Cure   string `json:"cure,omitempty"`
}

// Report is what this kernel and these privileges allow.
type Report struct {
	CPUs  []int   `json:"cpus"`
	Needs []Check `json:"needs"`
	Cells []Check `json:"cells"`
}

// Doctor tries everything that the cells need, on interfaces of its own in a
// namespace of its own. It guesses nothing from the kernel's version.
func Doctor() Report {
	var r Report
	r.CPUs, _ = cpus.Allowed() // without it the list is empty, which says it
	private := check("private network namespace", "run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN", func() error { return withVeth(nil) })
	pkt := check("packet port", "add CAP_NET_RAW, and CAP_NET_ADMIN for its buffers", func() error { return withVeth(tryPacket) })
	af := check("xdp port", "add CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW", func() error { return withVeth(tryXDP) })
	dev := check("dev ends", "add CAP_BPF and CAP_NET_ADMIN; the kernel must have tcx", func() error { return withVeth(tryClaim) })
	tun := check("tap ends", "load the tun module, or 'mkdir -p /dev/net && mknod /dev/net/tun c 10 200'", tryTun)
	nice := check("policy fifo and rr", "add CAP_SYS_NICE", tryNice)
	r.Needs = []Check{private, pkt, af, tun, dev, nice}
	for _, port := range []struct {
		name  string
		needs []Check
	}{{"user-packet", []Check{private, pkt}}, {"user-tap", []Check{private, tun}}, {"user-xdp", []Check{private, af}}} {
		for _, mode := range []string{"inline", "pool", "poller"} {
			r.Cells = append(r.Cells, cell(port.name+"/"+mode, port.needs))
		}
	}
	for _, dp := range []string{"direct", "tc", "xdp"} {
		for _, mode := range []string{"inline", "pool", "poller"} {
			name := dp + "/" + mode
			needs := []Check{private}
			if private.OK {
				needs = []Check{check("a pair of its own", kernelCure, func() error { return tryCell(dp, mode) })}
			}
			r.Cells = append(r.Cells, cell(name, needs))
		}
	}
	return r
}

func check(name, cure string, try func() error) Check {
	if err := try(); err != nil {
		return Check{Name: name, Reason: err.Error(), Cure: cure}
	}
	return Check{Name: name, OK: true}
}

// cell is possible when all it needs is.
func cell(name string, needs []Check) Check {
	for _, n := range needs {
		if !n.OK {
			return Check{Name: name, Reason: n.Name + ": " + n.Reason, Cure: n.Cure}
		}
	}
	return Check{Name: name, OK: true}
}

const kernelCure = "add CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, and CAP_SYS_NICE for poller; or use datapath user"

// tryCell carries a pair of its own, in two namespaces of its own.
func tryCell(datapath, mode string) error {
	end := func(side string) epair.EndConfig {
		return epair.EndConfig{Kind: epair.Veth, Name: "probe0", Netns: fmt.Sprintf("epair-doctor-%d-%s", os.Getpid(), side)}
	}
	d, err := Start(context.Background(), &epair.Config{Version: epair.Version, Pairs: []epair.PairConfig{
		{Name: "doctor", A: end("a"), B: end("b"), Datapath: datapath, Mode: mode},
	}})
	if err != nil {
		return errors.New(OneLine(err))
	}
	return d.Close()
}

// withVeth calls f with a veth that is up, in a namespace that goes with it.
func withVeth(f func(ns, ifindex int) error) (err error) {
	ns, err := netns.NewAnonymous()
	if err != nil {
		return caps.Explain(err, caps.SysAdmin)
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	var index int
	err = ns.Do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}, PeerName: "probe1"}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("create veth: %w", caps.Explain(err, caps.NetAdmin))
		}
		for _, name := range []string{"probe0", "probe1"} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
			index = l.Attrs().Index
		}
		return nil
	})
	if err != nil || f == nil {
		return err
	}
	return f(ns.FD(), index)
}

func tryPacket(ns, ifindex int) error {
	arena, err := port.NewArena(1)
	if err != nil {
		return err
	}
	w := port.Worker{Arena: arena}
	s := packet.NewSenders(packet.SenderConfig{NetNS: ns})
	end := &packet.End{RxConfig: packet.RxConfig{NetNS: ns, Ifindex: ifindex}, Senders: s}
	return errors.Join(openBoth(end, w), s.Close(), arena.Close())
}

// openBoth opens both halves and closes them; it stops at the first that fails.
func openBoth(o port.Opener, w port.Worker) error {
	rx, err := o.OpenRx(w)
	if err != nil {
		return err
	}
	tx, err := o.OpenTx(w)
	if err != nil {
		return errors.Join(err, rx.Close())
	}
	return errors.Join(rx.Close(), tx.Close())
}

func tryXDP(ns, ifindex int) error {
	p, err := xdp.Open(xdp.PairConfig{A: xdp.EndConfig{NetNS: ns, Ifindex: ifindex}})
	if err != nil {
		return err
	}
	return p.Close()
}

func tryClaim(ns, ifindex int) error {
	c, err := claim(ns, ifindex, "probe1")
	if err != nil {
		return err
	}
	return c.Close()
}

func tryTun() error {
	return withVeth(func(ns, _ int) error { return netns.Do(ns, makeTun) })
}

// makeTun makes a TAP that carries virtio-net headers, in this thread's namespace.
func makeTun() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq("probe%d")
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE)
		err = caps.Explain(unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, req), caps.NetAdmin)
	}
	return errors.Join(err, f.Close())
}

// tryNice looks the capability up: a try would change how this thread runs.
func tryNice() error {
	set, err := caps.Effective()
	if err != nil {
		return err
	}
	if !set.Has(caps.SysNice) {
		return fmt.Errorf("missing CAP_SYS_NICE: %w", unix.EPERM)
	}
	return nil
}
