package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// FlowDatagram is the payload that makes a frame of 64 bytes without its check sequence.
const FlowDatagram = 22

// Flow is what became of one UDP flow. Delivered is what a socket read, Arrived what reached its interface.
type Flow struct {
	Sent, Arrived, Delivered uint64
	Elapsed                  time.Duration
}

// Rate returns a number of datagrams as datagrams a second.
func (f Flow) Rate(n uint64) float64 { return float64(n) / f.Elapsed.Seconds() }

// UDPFlow sends one connected flow from a to b, 32 datagrams a call, for d. Arrivals are counted at b's interface. Without
// read, nobody reads the socket there, and the kernel drops them at its buffer, behind all else that it does.
func UDPFlow(ctx context.Context, a, b Host, ifindex int, read bool, d time.Duration) (f Flow, err error) {
	in, err := b.reader(read)
	if err != nil {
		return f, err
	}
	defer unix.Close(in)
	port, err := portOf(in)
	if err != nil {
		return f, err
	}
	came, err := countArrivals(b.NS, ifindex, port)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, came.close()) }()
	out, err := a.sources(in, 1)
	defer closeAll(out)
	if err != nil {
		return f, err
	}
	end := time.Now().Add(d)
	var got Throughput
	reading := b.work(func() (err error) {
		if read {
			got, err = collect(ctx, in, end.Add(linger))
		}
		return err
	})
	err = <-a.work(func() (err error) { f.Sent, f.Elapsed, err = sendFlow(ctx, out[0], end); return err })
	if err = errors.Join(err, <-reading); err != nil {
		return f, err
	}
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	time.Sleep(linger)
	f.Delivered = got.Frames
	f.Arrived, err = came.read()
	return f, err
}

func portOf(fd int) (uint16, error) {
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("find port: %w", err)
	}
	ip4, ok := addr.(*unix.SockaddrInet4)
	if !ok {
		return 0, errors.New("find port: not an IPv4 address")
	}
	return uint16(ip4.Port), nil
}

// sendFlow sends until end and returns how much, in what time.
func sendFlow(ctx context.Context, fd int, end time.Time) (sent uint64, took time.Duration, err error) {
	m := newMessages(FlowDatagram)
	start := time.Now()
	for ctx.Err() == nil && time.Now().Before(end) {
		n, err := m.send(fd)
		if err != nil && !slices.Contains(busy, err) {
			return sent, 0, fmt.Errorf("send datagrams: %w", err)
		}
		sent += uint64(n)
	}
	return sent, time.Since(start), nil
}
