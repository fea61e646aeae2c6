package epair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// farWatch follows the link events of all namespaces that the private one has an id for
// (NETLINK_LISTEN_ALL_NSID, netlink(7)), and their ends (RTM_DELNSID). Its socket waits in the runtime's poller, not
// in a thread.
type farWatch struct {
	sock *os.File
	conn syscall.RawConn
	seen chan struct{} // closed when run has ended

	mu   sync.Mutex // held from a look at a link until its state is stored
	ends map[farID]*End
}

type farID struct{ nsid, index int }

func newFarWatch(private *netns.NS) (*farWatch, error) {
	w := &farWatch{ends: map[farID]*End{}, seen: make(chan struct{})}
	if err := private.Do(w.open); err != nil {
		if w.sock != nil {
			w.sock.Close()
		}
		return nil, fmt.Errorf("watch links of other namespaces: %w", err)
	}
	go w.run()
	return w, nil
}

func (w *farWatch) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	w.sock = os.NewFile(uintptr(fd), "rtnetlink")
	const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_NSID-1)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		return os.NewSyscallError("setsockopt NETLINK_LISTEN_ALL_NSID", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVBUFFORCE", err)
	}
	w.conn, err = w.sock.SyscallConn()
	return err
}

func (w *farWatch) close() {
	w.sock.Close()
	<-w.seen
}

func (w *farWatch) add(e *End) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[farID{e.nsid, e.innerIndex}] = e
	return w.look(e)
}

func (w *farWatch) refresh(e *End) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.look(e)
}

// look reads e's state. Events of an older one may follow, then those of this one do too.
func (w *farWatch) look(e *End) error {
	a, err := e.far()
	if errors.Is(err, errNoLink) {
		e.setState(Gone)
		return err
	}
	if err != nil {
		return fmt.Errorf("read state of interface: %w", err)
	}
	e.setState(linkState(a))
	return nil
}

// remove says whether no end is left.
func (w *farWatch) remove(e *End) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := (farID{e.nsid, e.innerIndex}); w.ends[id] == e {
		delete(w.ends, id)
	}
	return len(w.ends) == 0
}

// run takes events until close.
func (w *farWatch) run() {
	defer close(w.seen)
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	for {
		err := w.conn.Read(func(fd uintptr) bool {
			n, noob, _, from, err := unix.Recvmsg(int(fd), buf, oob, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				return false
			}
			kernel, ok := from.(*unix.SockaddrNetlink)
			switch {
			case err != nil: // ENOBUFS: events are lost
				w.lookAtAll()
			case ok && kernel.Pid == nl.PidKernel:
				w.events(buf[:n], nsidOf(oob[:noob]))
			}
			return true
		})
		if err != nil { // closed
			return
		}
	}
}

// nsidOf is the id of the namespace that a message is from; -1 for the socket's own.
func nsidOf(oob []byte) int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(m.Data)))
		}
	}
	return -1
}

func (w *farWatch) events(data []byte, nsid int) {
	msgs, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range msgs {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			w.link(m.Header.Type, m.Data, nsid)
		case unix.RTM_DELNSID:
			if nsid < 0 {
				w.ended(m.Data)
			}
		}
	}
}

// link takes the event of a link. When one side of a veth goes, so does the other, of whose
// namespace nothing may be heard any more.
func (w *farWatch) link(typ uint16, data []byte, nsid int) {
	if len(data) < unix.SizeofIfInfomsg {
		return
	}
	info := nl.DeserializeIfInfomsg(data)
	e := w.ends[farID{nsid, int(info.Index)}]
	if e == nil || info.Family != unix.AF_UNSPEC {
		return
	}
	if typ == unix.RTM_DELLINK {
		e.setState(Gone)
		return
	}
	e.setState(linkState(&netlink.LinkAttrs{RawFlags: info.Flags}))
}

// ended takes the event that a namespace has ended.
func (w *farWatch) ended(data []byte) {
	attrs, err := nl.ParseRouteAttr(data[min(len(data), unix.NLMSG_ALIGNTO):]) // behind a struct rtgenmsg, aligned
	if err != nil {
		return
	}
	for _, a := range attrs {
		if a.Attr.Type != unix.NETNSA_NSID || len(a.Value) < 4 {
			continue
		}
		id := int(int32(binary.NativeEndian.Uint32(a.Value)))
		for at, e := range w.ends {
			if at.nsid == id {
				e.setState(Gone)
			}
		}
	}
}

// lookAtAll makes up for lost events.
func (w *farWatch) lookAtAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ends {
		_ = w.look(e) // an error that isn't ENODEV is a passing one: the next event corrects the state
	}
}
