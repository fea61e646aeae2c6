package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// RTT is a distribution of round-trip times.
type RTT struct{ h *hdrhistogram.Histogram }

// newRTT holds 1 µs to 60 s with three digits.
func newRTT() RTT { return RTT{hdrhistogram.New(1, 60_000_000_000, 3)} }

// Percentile returns the time that p percent of the round trips didn't exceed.
func (r RTT) Percentile(p float64) time.Duration { return time.Duration(r.h.ValueAtQuantile(p)) }

// Count returns the number of round trips.
func (r RTT) Count() int64 { return r.h.TotalCount() }

// RR asks b from a, one byte at a time over one TCP connection, for d: each
// request waits for the answer to the last.
func RR(ctx context.Context, a, b Host, d time.Duration) (RTT, error) {
	in, out, err := connect(ctx, a, b)
	if err != nil {
		return RTT{}, err
	}
	defer in.Close()
	defer out.Close()
	defer closeOn(ctx, in, out)()

	echoed := make(chan error, 1)
	go func() { echoed <- echo(in) }()
	rtt := newRTT()
	var b1 [1]byte
	for end := time.Now().Add(d); ; {
		sent := time.Now()
		if sent.After(end) {
			break
		}
		if _, err = out.Write(b1[:]); err == nil {
			_, err = io.ReadFull(out, b1[:])
		}
		if err != nil {
			return RTT{}, errors.Join(ctx.Err(), fmt.Errorf("ask %s: %w", b.Addr, err))
		}
		if err := rtt.h.RecordValue(int64(time.Since(sent))); err != nil {
			return RTT{}, fmt.Errorf("record round trip: %w", err)
		}
	}
	return rtt, errors.Join(out.CloseWrite(), <-echoed, ctx.Err())
}

// echo answers each byte with itself until the peer closes.
func echo(c *net.TCPConn) error {
	var b [1]byte
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := c.Write(b[:]); err != nil {
			return err
		}
	}
}
