// Package fake is a forwarder with known faults: it loses, repeats, reorders, delays and
// stops as it is told, and keeps a ledger of it, so that what a bench says can be checked.
//
//	in ─▶ reader: takes frames, decides ─▶ queue ─▶ writer: waits until each is due ─▶ out
//
// It is meant for some ten thousand frames a second.
package fake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// Config says what goes wrong. Zero: nothing.
type Config struct {
	NetNS   int // descriptor of the namespace of both interfaces, borrowed until New returns
	In, Out int // interfaces

	DropEvery   int // every n-th frame taken is lost,
	RepeatEvery int // or else sent twice,
	SwapEvery   int // or else held until the next of its flow has gone

	Capacity float64       // frames a second, 0: no limit
	Queue    int           // frames that wait for their turn, 0: DefaultQueue; more are lost
	Delay    time.Duration // from when the load had a frame due until it leaves
}

// DefaultQueue holds seconds of what the forwarder is meant for.
const DefaultQueue = 1 << 17

// Ledger is what became of frames.
type Ledger struct {
	Taken    uint64 // the load's frames
	Dropped  uint64 // by plan
	Overflow uint64 // the queue was full
	Missed   uint64 // by the kernel, before they could be taken
	Repeated uint64
	Swapped  uint64 // sent behind the next of their flow

	Sent        uint64 // repeats included
	First, Last time.Time
}

// Forwarder is at work from New to Close.
type Forwarder struct {
	cfg     Config
	in, out int // sockets
	queue   chan entry
	stopped atomic.Int64 // until when, Unix ns
	ending  atomic.Bool
	done    sync.WaitGroup
	once    sync.Once
	err     error

	mu     sync.Mutex
	ledger Ledger
}

// entry is a frame in the queue.
type entry struct {
	frame []byte
	due   time.Time
	flaws flaws
}

// buffer holds some seconds of frames, as the kernel reckons them.
const buffer = 256 << 20

// New starts a forwarder.
func New(cfg Config) (*Forwarder, error) {
	if cfg.Queue == 0 {
		cfg.Queue = DefaultQueue
	}
	f := &Forwarder{cfg: cfg, in: -1, out: -1, queue: make(chan entry, cfg.Queue)}
	err := netns.Do(cfg.NetNS, func() (err error) {
		if f.in, err = socket(cfg.In, unix.ETH_P_ALL); err != nil {
			return err
		}
		f.out, err = socket(cfg.Out, 0)
		return err
	})
	if err == nil {
		err = unix.SetsockoptInt(f.in, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	}
	if err == nil {
		err = unix.SetsockoptTimeval(f.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create forwarder: %w", err), f.closeSockets())
	}
	f.done.Add(2)
	go f.read()
	go f.write()
	return f, nil
}

// socket opens one on an interface that gets what comes in there of a protocol; 0: nothing.
func socket(ifindex int, protocol uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	var be [2]byte
	binary.BigEndian.PutUint16(be[:], protocol)
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: binary.NativeEndian.Uint16(be[:])})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("bind to interface %d: %w", ifindex, err), unix.Close(fd))
	}
	return fd, nil
}

// Stop keeps frames from leaving for d from now. They wait in the queue, and leave at once then.
func (f *Forwarder) Stop(d time.Duration) { f.stopped.Store(time.Now().Add(d).UnixNano()) }

// Ledger returns what has become of frames until now. Those in the queue are Taken only.
func (f *Forwarder) Ledger() (Ledger, error) {
	st, err := unix.GetsockoptTpacketStats(f.in, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return Ledger{}, fmt.Errorf("read forwarder: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger.Missed += uint64(st.Drops) // reading clears it
	return f.ledger, nil
}

// Close stops the forwarder; what waits in its queue is lost. It is idempotent.
func (f *Forwarder) Close() error {
	f.once.Do(func() {
		f.ending.Store(true)
		f.done.Wait()
		f.err = f.closeSockets()
	})
	return f.err
}

func (f *Forwarder) closeSockets() error {
	var errs []error
	for _, fd := range []int{f.in, f.out} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}
