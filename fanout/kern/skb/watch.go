package skb

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// watch keeps the maps of targets true of all crossings whose outer sides are in one namespace: the address of each
// inner end, and whether it is in another namespace than its outer side, and up. It sits in the outer sides'
// namespace, from where the kernel tells the inner ends' addresses too (NETLINK_LISTEN_ALL_NSID, netlink(7)): nothing is
// open in the inner ends' namespaces. Its socket waits in the runtime's poller, not in a thread.
type watch struct {
	sock *os.File
	conn syscall.RawConn
	done sync.WaitGroup

	mu  sync.Mutex // guards what follows, and the maps of targets
	ask nl.SocketHandle
	all map[*targets]struct{}
}

// targets is where one crossing's frames go to.
type targets struct {
	w    *watch
	m    *ebpf.Map     // skb_target
	ends [2]*targetEnd // that direction 0 and 1 go to
}

// howPeer is SKB_PEER of enum skb_how; 0 is by bpf_redirect, which is right always.
const howPeer = 1

// targetEnd is an end that frames go to.
type targetEnd struct {
	outer int  // ifindex
	dev   bool // it is an existing device: there is no inner end
	inner int  // ifindex
	nsid  int  // of the inner end's namespace; -1 if it's the outer side's
}

func newWatch(ns int) (*watch, error) {
	w := &watch{all: map[*targets]struct{}{}}
	err := netns.Do(ns, func() (err error) {
		if w.ask.Socket, err = nl.Subscribe(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		return w.open()
	})
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.done.Go(w.run)
	return w, nil
}

// add keeps t true from now on.
func (w *watch) add(t *targets) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[t] = struct{}{}
	return w.look(t)
}

// remove says whether no targets are left.
func (w *watch) remove(t *targets) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, t)
	return len(w.all) == 0
}

func (w *watch) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	w.sock = os.NewFile(uintptr(fd), "rtnetlink")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_LINK - 1)}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		return os.NewSyscallError("setsockopt NETLINK_LISTEN_ALL_NSID", err)
	}
	w.conn, err = w.sock.SyscallConn()
	return err
}

// look reads all there is to know for a crossing, and tells its programs.
func (w *watch) look(t *targets) error {
	for dir, e := range t.ends {
		v := skbSkbTarget{Ifindex: uint32(e.outer)}
		if err := w.lookAt(e, &v); err != nil {
			return err
		}
		if err := t.m.Put(uint32(dir), v); err != nil {
			return fmt.Errorf("tell programs: %w", err)
		}
	}
	return nil
}

// lookAt finds the inner end by its outer side: the kernel gives its namespace an id meanwhile.
func (w *watch) lookAt(e *targetEnd, t *skbSkbTarget) error {
	if e.dev {
		return nil
	}
	l, err := w.link(e.outer, -1)
	if errors.Is(err, unix.ENODEV) {
		return nil // the end is gone
	}
	if err != nil {
		return err
	}
	e.inner, e.nsid = l.ParentIndex, l.NetNsID
	if e.nsid < 0 {
		return nil
	}
	l, err = w.link(e.inner, e.nsid)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil // it goes, or moves: an event of its outer side follows
	}
	if err == nil && l.RawFlags&unix.IFF_UP != 0 && len(l.HardwareAddr) == len(t.Mac) {
		copy(t.Mac[:], l.HardwareAddr)
		t.How = howPeer
	}
	return err
}

// link asks for a link, of another namespace unless nsid is negative.
func (w *watch) link(index, nsid int) (*netlink.LinkAttrs, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: &w.ask}
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	req.AddData(info)
	if nsid >= 0 {
		req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(nsid))))
	}
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("read link %d: %d answers", index, len(msgs))
	}
	l, err := netlink.LinkDeserialize(nil, msgs[0])
	if err != nil {
		return nil, err
	}
	return l.Attrs(), nil
}

// run takes events until close.
func (w *watch) run() {
	// A message that is longer doesn't parse, and counts as one of concern.
	buf, oob := make([]byte, 8<<10), make([]byte, unix.CmsgSpace(4))
	for {
		err := w.conn.Read(func(fd uintptr) bool {
			n, noob, _, _, err := unix.Recvmsg(int(fd), buf, oob, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				return false
			}
			msgs, perr := syscall.ParseNetlinkMessage(buf[:max(n, 0)])
			// An error is ENOBUFS: events are lost, and any end may be concerned.
			w.events(msgs, nsidOf(oob[:noob]), err != nil || perr != nil)
			return true
		})
		if err != nil { // closed
			return
		}
	}
}

func (w *watch) events(msgs []syscall.NetlinkMessage, nsid int, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.all {
		if lost || t.concerned(msgs, nsid) {
			// What can't be read now is passing: the event that follows it makes up for it.
			_ = w.look(t)
		}
	}
}

// nsidOf is the namespace that an event is from; -1 for the socket's own.
func nsidOf(oob []byte) int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int(int32(nl.NativeEndian().Uint32(m.Data)))
		}
	}
	return -1
}

// concerned says whether messages are about one of the ends.
func (t *targets) concerned(msgs []syscall.NetlinkMessage, nsid int) bool {
	for _, m := range msgs {
		if len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		index := int(nl.DeserializeIfInfomsg(m.Data).Index)
		for _, e := range t.ends {
			if !e.dev && (nsid < 0 && index == e.outer || nsid == e.nsid && index == e.inner) {
				return true
			}
		}
	}
	return false
}

func (w *watch) close() error {
	var err error
	if w.sock != nil {
		err = w.sock.Close()
		w.done.Wait()
	}
	if w.ask.Socket != nil {
		w.ask.Socket.Close()
	}
	return err
}
