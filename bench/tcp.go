package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Throughput is what arrived in a time.
type Throughput struct {
	Bytes, Frames uint64 // Frames: datagrams, where there are any
	Elapsed       time.Duration
}

// Gbps returns 10^9 payload bits a second.
func (t Throughput) Gbps() float64 { return float64(t.Bytes) * 8 / t.Elapsed.Seconds() / 1e9 }

// Kpps returns thousands of datagrams a second.
func (t Throughput) Kpps() float64 { return float64(t.Frames) / t.Elapsed.Seconds() / 1e3 }

// bulk is how much one write passes to the kernel: a few GSO frames.
const bulk = 256 << 10

// TCP sends one stream from a to b for d and returns what b read.
func TCP(ctx context.Context, a, b Host, d time.Duration) (Throughput, error) {
	return TCPStreams(ctx, a, b, 1, d)
}

// TCPStreams sends n streams from a to b for d and returns what b read of all, until the last ended. Each
// has one thread at either end.
func TCPStreams(ctx context.Context, a, b Host, n int, d time.Duration) (t Throughput, err error) {
	calls, err := connections(ctx, a, b, n)
	if err != nil {
		return t, err
	}
	defer calls.close()
	start := time.Now()
	bytes := make([]uint64, n)
	err = calls.run(ctx, a, b,
		func(_ int, out stream) error { return pour(out, start.Add(d)) },
		func(i int, in stream) (err error) { bytes[i], err = drink(in); return err })
	t.Elapsed = time.Since(start)
	for _, n := range bytes {
		t.Bytes += n
	}
	return t, err
}

// pour writes until end.
func pour(out stream, end time.Time) error {
	buf := make([]byte, bulk)
	var err error
	for err == nil && time.Now().Before(end) {
		_, err = out.Write(buf)
	}
	return errors.Join(err, out.finish())
}

// drink reads until the peer has finished.
func drink(in stream) (total uint64, err error) {
	buf := make([]byte, bulk)
	for {
		n, err := in.Read(buf)
		total += uint64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// calls are connections under test.
type calls struct{ in, out []stream }

// connections makes n of them from a to b, or none.
func connections(ctx context.Context, a, b Host, n int) (*calls, error) {
	c := &calls{}
	if n < 1 {
		return nil, fmt.Errorf("connect %s to %s: %d connections", a.Addr, b.Addr, n)
	}
	for range n {
		in, out, err := connect(ctx, a, b)
		if err != nil {
			c.close()
			return nil, err
		}
		c.in, c.out = append(c.in, in), append(c.out, out)
	}
	return c, nil
}

// run works on both ends of each connection at once, and returns when all have ended, with the first error. When there is
// one, or ctx ends, the calls of all fail.
func (c *calls) run(ctx context.Context, a, b Host, near, far func(i int, s stream) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var fds []int
	var all sync.WaitGroup
	part := func(h Host, fn func() error) {
		done := h.work(fn)
		all.Go(func() {
			if err := <-done; err != nil {
				cancel(err) // only the first call's error stays
			}
		})
	}
	for i := range c.in {
		fds = append(fds, int(c.in[i]), int(c.out[i]))
		part(b, func() error { return far(i, c.in[i]) })
		part(a, func() error { return near(i, c.out[i]) })
	}
	defer hangUp(ctx, fds...)()
	all.Wait()
	return context.Cause(ctx)
}

func (c *calls) close() {
	for i := range c.in {
		// Nothing is lost by an error here: all that counts has been read.
		_, _ = c.in[i].close(), c.out[i].close()
	}
}
