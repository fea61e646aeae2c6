package epair

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// The monitor keeps the state of every end.
//
//	end   its state follows from                                          found by
//	veth  the outer side, whose carrier is that both sides are up and     link events of the
//	      which ends with the inner side                                  private namespace
//	dev   the interface                                                   link events of its namespace
//	      its namespace has lost the name we opened it by                 looking, every tick
//	veth  of a direct pair: its own carrier, which is that both sides are  link events of the
//	      up                                                               other namespaces
//	tap   what its queue is ready for: POLLOUT while it's up, POLLERR     looking, every tick
//	      when it's deleted (tun_chr_poll, drivers/net/tun.c)
//
// So nothing must be open in the namespaces of veth and tap ends, which would keep
// them alive after their owners have deleted them.
type monitor struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	watches map[netns.ID]*watch
	taps    []*End
	polls   []unix.PollFd // of taps
	guests  []*End        // dev ends in namespaces that may be deleted
	private *netns.NS
	far     *farWatch // of direct pairs; nil until there is one
}

// tick is how often the monitor looks at what sends no events.
const tick = 250 * time.Millisecond

func newMonitor(private *netns.NS, out *netlink.Handle) (*monitor, error) {
	m := &monitor{stop: make(chan struct{}), watches: map[netns.ID]*watch{}, private: private}
	w, err := newWatch(private, out)
	if err != nil {
		return nil, err
	}
	m.watches[private.ID()] = w
	m.done.Go(w.run)
	m.done.Go(m.run)
	return m, nil
}

// close ends the monitor. The states stay as they are.
func (m *monitor) close() {
	close(m.stop)
	m.mu.Lock()
	for _, w := range m.watches {
		w.close()
	}
	far := m.far
	m.mu.Unlock()
	if far != nil {
		far.close()
	}
	m.done.Wait()
}

// add starts to keep e's state, and sets it.
func (m *monitor) add(e *End) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.cfg.Kind == TAP {
		m.taps = append(m.taps, e)
		m.polls = append(m.polls, unix.PollFd{Fd: int32(e.tapFD), Events: unix.POLLOUT})
		m.lookAtTaps()
		return nil
	}
	if e.direct {
		return m.addDirect(e)
	}
	ns := e.portSpace()
	w := m.watches[ns.ID()]
	if w == nil {
		h, err := open(ns)
		if err != nil {
			return err
		}
		if w, err = newWatch(ns, h); err != nil {
			h.Close()
			return err
		}
		w.ownHandle = true
		m.watches[ns.ID()] = w
		m.done.Go(w.run)
	}
	if e.cfg.Kind == Dev && e.cfg.netns() != netns.Host {
		m.guests = append(m.guests, e)
	}
	return w.add(e)
}

func (m *monitor) addDirect(e *End) (err error) {
	if m.far == nil {
		if m.far, err = newFarWatch(m.private); err != nil {
			return err
		}
	}
	return m.far.add(e)
}

func (m *monitor) refreshDirect(e *End) error {
	if m.far == nil {
		return errNoLink
	}
	return m.far.refresh(e)
}

// refresh looks at an end now.
func (m *monitor) refresh(e *End) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.cfg.Kind == TAP {
		m.lookAtTaps()
		return nil
	}
	if e.direct {
		return m.refreshDirect(e)
	}
	w := m.watches[e.portSpace().ID()]
	if w == nil {
		return errNoLink
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.look(e)
}

// remove stops to keep e's state, which is Gone from now on.
func (m *monitor) remove(e *End) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.state.Store(int32(Gone))
	for i, t := range m.taps {
		if t == e {
			m.taps = append(m.taps[:i], m.taps[i+1:]...)
			m.polls = append(m.polls[:i], m.polls[i+1:]...)
			break
		}
	}
	for i, g := range m.guests {
		if g == e {
			m.guests = append(m.guests[:i], m.guests[i+1:]...)
			break
		}
	}
	if m.far != nil && m.far.remove(e) {
		m.far.close()
		m.far = nil
	}
	for id, w := range m.watches {
		if w.remove(e) && w.ownHandle {
			w.close()
			delete(m.watches, id)
		}
	}
}

// run looks at what sends no events.
func (m *monitor) run() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
			m.mu.Lock()
			m.lookAtTaps()
			m.lookAtGuests()
			m.mu.Unlock()
		}
	}
}

func (m *monitor) lookAtTaps() {
	if len(m.polls) == 0 {
		return
	}
	if _, err := unix.Poll(m.polls, 0); err != nil {
		return // EINTR: the next tick will do
	}
	for i, e := range m.taps {
		switch r := m.polls[i].Revents; {
		case r&(unix.POLLERR|unix.POLLNVAL) != 0:
			e.setState(Gone)
		case r&unix.POLLOUT != 0:
			e.setState(Up)
		default:
			e.setState(Down)
		}
	}
}

// lookAtGuests finds out whether the namespaces of dev ends still have the name by which
// they were opened. We and our ports keep them alive; their owners have deleted them all the same.
func (m *monitor) lookAtGuests() {
	for _, e := range m.guests {
		var st unix.Stat_t
		err := unix.Stat(e.nsPath, &st)
		lost := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
		if lost || err == nil && (netns.ID{Dev: st.Dev, Ino: st.Ino}) != e.ns.ID() {
			e.setState(Gone)
		}
	}
}

// setState changes the state. What is gone stays gone.
func (e *End) setState(s State) {
	for {
		old := e.state.Load()
		if State(old) == Gone || e.state.CompareAndSwap(old, int32(s)) {
			return
		}
	}
}

func linkState(a *netlink.LinkAttrs) State {
	if running(a) {
		return Up
	}
	return Down
}

var errNoLink = fmt.Errorf("interface is gone: %w", unix.ENODEV)
