package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/wire"
)

// long sends frames that are longer than the kernel's own can be, by a packet socket: they pass the interface's egress
// hooks and queue, as those of skb mode do. It does what generate does (gen.c), in the same words.
type long struct {
	fd    int
	size  int
	first int // number of the first flow
	frame *frames

	mu    sync.Mutex // guards what follows
	order genGenOrder
	s     genGenState
	flows []genGenFlow
}

// newLong opens the socket, in the namespace that it is called in.
func newLong(cfg *Config, first int) (*long, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: cfg.Ifindex}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind packet socket to interface %d: %w", cfg.Ifindex, err), unix.Close(fd))
	}
	return &long{fd: fd, size: cfg.Size, first: first, frame: newFrames(cfg.Size), order: genGenOrder{Start: never}}, nil
}

func (l *long) give(o genGenOrder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = o
	return nil
}

func (l *long) clear(flows []genGenFlow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s, l.flows = genGenState{}, append(l.flows[:0], flows...)
	return nil
}

func (l *long) state() (genGenState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s, nil
}

func (l *long) run(_ uint32, stopping *atomic.Bool) error {
	for !stopping.Load() {
		n := l.fill()
		for at := 0; at < n && !stopping.Load(); {
			sent, err := l.frame.send(l.fd, at, n)
			switch {
			case err == nil:
				at += sent
			case errors.Is(err, unix.ENOBUFS): // the interface took it and had no room: offered, and lost
				at++
			case !errors.Is(err, unix.EINTR):
				return fmt.Errorf("send frames of %d bytes: %w", l.size, err)
			}
		}
	}
	return nil
}

// fill makes the frames that are due, at most a batch.
func (l *long) fill() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := now()
	l.s.Turns++
	for n < len(l.frame.bufs) {
		when, ok := l.due(now)
		if !ok {
			break
		}
		late := now - when
		if l.tooLate(late) {
			continue
		}
		l.write(l.frame.bufs[n], when, late)
		l.s.MaxLate, l.s.Last = max(l.s.MaxLate, late), now
		l.s.Offered++
		l.s.Bytes += uint64(l.size)
		n++
	}
	if n == 0 {
		l.s.Spins++
	}
	return n
}

// due says whether a frame is to go now, and when it should have gone.
func (l *long) due(now uint64) (when uint64, ok bool) {
	o := &l.order
	if now < o.Start {
		return 0, false
	}
	if o.Period == 0 {
		if now >= o.End {
			l.s.Finished = 1
		}
		return now, now < o.End
	}
	when = o.Start + o.Phase + l.s.Due*o.Period>>fraction
	if when >= o.End || now >= o.Limit {
		l.s.Finished = 1
		return 0, false
	}
	return when, now >= when
}

// tooLate skips a frame that the order doesn't want any more.
func (l *long) tooLate(late uint64) bool {
	if l.order.Period == 0 {
		return false
	}
	l.s.Due++
	if l.order.Burst == 0 || late <= l.order.Burst {
		return false
	}
	l.s.Skipped++
	return true
}

// write makes the next flow's frame; behind its stamp are zeros.
func (l *long) write(b []byte, when, late uint64) {
	flow := int(l.s.Flow)
	l.s.Flow = uint32((flow + 1) % len(l.flows))
	t := &l.flows[flow]
	for i, w := range t.Header {
		binary.NativeEndian.PutUint64(b[8*i:], w)
	}
	s := wire.Stamp{Run: uint16(l.order.Run), Flow: uint16(l.first + flow), Seq: t.Seq, Due: when, Late: uint32(min(late, 1<<32-1))}
	if t.Seq++; t.Sum == 0 {
		wire.Finish6(b, s)
	} else {
		wire.Finish(b, t.Sum, s)
	}
}

// Close closes the socket.
func (l *long) Close() error { return unix.Close(l.fd) }
