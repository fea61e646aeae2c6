package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Mode says where the kernel runs an end's XDP program.
type Mode string

// The modes, the fast one first.
const (
	Native  Mode = "native"  // in the driver, before there is an skb
	Generic Mode = "generic" // in the network stack, as the driver can't: each frame costs an skb more
)

// redirect is the program that takes all frames of an interface to the sockets of their queues, and
// what it needs.
type redirect struct {
	sockets *ebpf.Map // by queue
	prog    *ebpf.Program
	link    link.Link
	mode    Mode
}

// newRedirect loads the program for an interface with a number of receive queues.
func newRedirect(queues int) (*redirect, error) {
	r := &redirect{}
	var err error
	r.sockets, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "epair_xsk", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(queues),
	})
	if err != nil {
		return nil, fmt.Errorf("create map of sockets: %w", err)
	}
	r.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "epair_redirect", Type: ebpf.XDP, License: "GPL", Instructions: program(r.sockets.FD()),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load XDP program: %w", err), r.close())
	}
	return r, nil
}

// program is
//
//	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
//
// A frame for which there is no socket is dropped: it must not reach the stack behind a cable's end.
func program(sockets int) asm.Instructions {
	const rxQueueIndex, drop = 16, 1 // struct xdp_md; enum xdp_action
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word),
		asm.LoadMapPtr(asm.R1, sockets),
		asm.Mov.Imm(asm.R3, drop),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}
}

// attach attaches the program by a link, which goes with this process. It runs in the interface's
// namespace. A program that is there already stays: the kernel lets a link replace none.
func (r *redirect) attach(d *device, ifindex int) (err error) {
	for _, m := range []struct {
		Mode
		flag link.XDPAttachFlags
	}{{Native, link.XDPDriverMode}, {Generic, link.XDPGenericMode}} {
		r.mode = m.Mode
		r.link, err = link.AttachXDP(link.XDPOptions{Program: r.prog, Interface: ifindex, Flags: m.flag})
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, ebpf.ErrNotSupported) {
			break
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST): // dev_xdp_attach
		return fmt.Errorf("attach XDP program to %s: another program came first (remove it): %w", d.name, err)
	case errors.Is(err, unix.ERANGE): // veth_xdp_set
		return fmt.Errorf("attach XDP program to %s: the peer's MTU is too large for XDP (lower it to 3506, or use port packet): %w", d.name, err)
	case errors.Is(err, unix.ENOSPC): // veth_xdp_set
		return fmt.Errorf("attach XDP program to %s: it has %d receive queues, and its peer more transmit queues (create the peer with numtxqueues %d): %w", d.name, d.rx, d.rx, err)
	}
	return fmt.Errorf("attach XDP program to %s: %w", d.name, err)
}

// close takes the program away. Nothing arrives any more when it returns.
func (r *redirect) close() (err error) {
	if r.link != nil {
		// Who looks at all links of the machine at this moment would hold this one.
		err = errors.Join(r.link.Detach(), r.link.Close())
	}
	if r.prog != nil {
		err = errors.Join(err, r.prog.Close())
	}
	if r.sockets != nil {
		err = errors.Join(err, r.sockets.Close())
	}
	*r = redirect{mode: r.mode}
	return err
}

// foreign refuses an interface that has an XDP program.
func foreign(d *device) error {
	if d.xdp == nil || !d.xdp.Attached {
		return nil
	}
	what := fmt.Sprintf("an XDP program (%s)", xdpMode(d.xdp))
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(d.xdp.ProgId)); err == nil {
		if info, err := p.Info(); err == nil {
			what = fmt.Sprintf("XDP program %q (ID %d, %s)", info.Name, d.xdp.ProgId, xdpMode(d.xdp))
		}
		p.Close()
	}
	return fmt.Errorf("%s has %s, which isn't ours (remove it, e.g. by ip link set dev %s xdp off)", d.name, what, d.name)
}

func xdpMode(x *netlink.LinkXdp) Mode {
	if x.AttachMode == nl.XDP_ATTACHED_SKB {
		return Generic
	}
	return Native
}
