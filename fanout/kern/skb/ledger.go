package skb

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/epair-net/epair/fanout/kern"
)

// Ledgers implements kern.Crossing. Reading isn't one moment's work, so frames that pass meanwhile
// seem to be queued; when no frame passes, nothing is.
func (c *crossing) Ledgers() (ab, ba kern.Ledger, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.last[0], c.last[1], nil
	}
	if ab, err = c.ledger(0); err == nil {
		ba, err = c.ledger(1)
	}
	if err != nil {
		return ab, ba, fmt.Errorf("read ledger of %s: %w", c.name, err)
	}
	return ab, ba, nil
}

// ledger reads one direction until it balances or traffic explains why it doesn't. What is in flight while frames
// pass can't be counted, only bounded: it is the remainder.
func (c *crossing) ledger(dir int) (kern.Ledger, error) {
	const (
		pause = 200 * time.Microsecond
		tries = 10
	)
	last, err := c.look(dir)
	for range tries {
		if err != nil || last.Imbalance() == 0 {
			return last, err
		}
		time.Sleep(pause)
		next, err := c.look(dir)
		if err != nil {
			return next, err
		}
		if next.Rx != last.Rx || next.Tx != last.Tx {
			if n := next.Imbalance(); n > 0 {
				next.Queued = uint64(n)
			}
			return next, nil
		}
		last = next
	}
	return last, nil
}

// look reads a direction once: what came in after what became of it, so that a difference is what's queued.
func (c *crossing) look(dir int) (kern.Ledger, error) {
	counts, err := c.progs.counters.Read(dir)
	if err != nil {
		return kern.Ledger{}, err
	}
	l, err := c.meters[dir].read(counts)
	if err != nil {
		return l, err
	}
	after, err := c.progs.counters.Read(dir)
	if err != nil {
		return l, err
	}
	l.Rx += after.Rx - counts.Rx
	l.RxBytes += after.RxBytes - counts.RxBytes
	if c.mode == kern.Pool {
		l.Unsteered = counts.Unsteered - c.unsteered[dir]
	}
	return l, err
}

func (c *crossing) countUnsteered() (n [2]uint64, err error) {
	for dir := range n {
		counts, err := c.progs.counters.Read(dir)
		if err != nil {
			return n, err
		}
		n[dir] = counts.Unsteered
	}
	return n, nil
}

// stat is a counter of a device since it was opened (/sys/class/net/*/statistics).
type stat struct {
	f    file
	base uint64
}

func openStat(s *sysfs, d kern.Device, name string) (*stat, error) {
	f, err := s.open(fmt.Sprintf("class/net/%s/statistics/%s", d.Name, name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	st := &stat{f: f}
	if st.base, err = f.number(); err != nil {
		f.close()
		return nil, err
	}
	return st, nil
}

func (s *stat) close() error { return s.f.close() }

// stats are some counters, which are read together.
type stats struct {
	all  []*stat
	fit  func(v []uint64) bool // whether they can be true together; nil: always
	last []uint64              // what they were when all were there
	gone bool                  // a device is gone, or going
}

func (s *stats) open(fs *sysfs, d kern.Device, names ...string) error {
	for _, name := range names {
		st, err := openStat(fs, d, name)
		if err != nil {
			return err
		}
		s.all = append(s.all, st)
		s.last = append(s.last, 0)
	}
	return nil
}

// values reads them, in the order in which they were opened. There are as many, also with an error. The devices of a
// pair go one after the other, and a veth whose peer goes forgets what that one counted for it (veth_get_stats64,
// drivers/net/veth.c). So when one is going, all counters stay as they last were together.
func (s *stats) values() ([]uint64, error) {
	v := make([]uint64, len(s.all))
	for i, st := range s.all {
		n, err := st.f.number()
		if err != nil && !gone(err) {
			return v, err
		}
		s.gone = s.gone || err != nil || n < st.base+s.last[i]
		v[i] = n - st.base
	}
	if s.gone = s.gone || s.fit != nil && !s.fit(v); s.gone {
		return s.last, nil
	}
	s.last = v
	return v, nil
}

func (s *stats) close() error {
	var errs []error
	for _, st := range s.all {
		errs = append(errs, st.close())
	}
	return errors.Join(errs...)
}
