package epair

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// watch follows the link events of one namespace. Its socket waits in the runtime's
// poller, not in a thread.
type watch struct {
	sub       *nl.NetlinkSocket
	h         *netlink.Handle
	ownHandle bool

	mu     sync.Mutex // held from a look at a link until its state is stored
	ends   map[int]*End
	closed bool
}

// eventBuffer takes the events of thousands of links that change at once. If it isn't
// enough, the kernel says so (ENOBUFS) and we look at all of them.
const eventBuffer = 4 << 20

func newWatch(ns *netns.NS, h *netlink.Handle) (*watch, error) {
	w := &watch{h: h, ends: map[int]*End{}}
	err := ns.Do(func() (err error) {
		w.sub, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	if err := w.sub.SetReceiveBufferSize(eventBuffer, true); err != nil {
		w.sub.Close()
		return nil, fmt.Errorf("watch links: enlarge receive buffer: %w", err)
	}
	return w, nil
}

// close ends run. The caller waits for that.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	w.sub.Close()
	if w.ownHandle {
		w.h.Close()
	}
}

func (w *watch) add(e *End) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[e.portIndex] = e
	return w.look(e)
}

// look reads e's state. Events of an older one may follow, then those of this one do too.
func (w *watch) look(e *End) error {
	l, err := w.h.LinkByIndex(e.portIndex)
	if missing(err) {
		e.setState(Gone)
		return errNoLink
	}
	if err != nil {
		return fmt.Errorf("read state of interface: %w", err)
	}
	e.setState(linkState(l.Attrs()))
	return nil
}

// remove says whether no end is left.
func (w *watch) remove(e *End) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends[e.portIndex] == e {
		delete(w.ends, e.portIndex)
	}
	return len(w.ends) == 0
}

// run takes events until close.
func (w *watch) run() {
	for {
		msgs, from, err := w.sub.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.lookAtAll()
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // closed
			return
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		w.mu.Lock()
		for _, m := range msgs {
			w.event(m.Header.Type, m.Data)
		}
		w.mu.Unlock()
	}
}

func (w *watch) event(typ uint16, data []byte) {
	if len(data) < unix.SizeofIfInfomsg {
		return
	}
	info := nl.DeserializeIfInfomsg(data)
	e := w.ends[int(info.Index)]
	// A bridge sends events about its ports under its own family: RTM_DELLINK means
	// there that the port left the bridge.
	if e == nil || info.Family != unix.AF_UNSPEC {
		return
	}
	switch typ {
	case unix.RTM_DELLINK:
		e.setState(Gone)
	case unix.RTM_NEWLINK:
		e.setState(linkState(&netlink.LinkAttrs{RawFlags: info.Flags}))
	}
}

// lookAtAll makes up for lost events.
func (w *watch) lookAtAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for _, e := range w.ends {
		_ = w.look(e) // an error that isn't ENODEV is a passing one: the next event corrects the state
	}
}
