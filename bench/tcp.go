package bench

import (
	"context"
	"errors"
	"net"
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
	in, out, err := connect(ctx, a, b)
	if err != nil {
		return Throughput{}, err
	}
	defer in.Close()
	defer out.Close()
	defer closeOn(ctx, in, out)()

	sent := make(chan error, 1)
	start := time.Now()
	go func() {
		buf := make([]byte, bulk)
		var err error
		for end := start.Add(d); err == nil && time.Now().Before(end); {
			_, err = out.Write(buf)
		}
		sent <- errors.Join(err, out.CloseWrite())
	}()
	var t Throughput
	buf := make([]byte, bulk)
	for {
		n, err := in.Read(buf)
		t.Bytes += uint64(n)
		if err != nil {
			break // the sender's error tells why, if it is one
		}
	}
	t.Elapsed = time.Since(start)
	return t, errors.Join(<-sent, ctx.Err())
}

// connect returns both ends of a TCP connection from a to b.
func connect(ctx context.Context, a, b Host) (in, out *net.TCPConn, err error) {
	ln, err := b.listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if out, err = a.dial(ctx, ln.Addr()); err != nil {
		return nil, nil, err
	}
	if err = ln.SetDeadline(time.Now().Add(5 * time.Second)); err == nil {
		in, err = ln.AcceptTCP()
	}
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	return in, out, nil
}

// closeOn closes conns when ctx ends, which ends their blocked calls. The result stops the watch.
func closeOn(ctx context.Context, conns ...*net.TCPConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		for _, c := range conns {
			c.Close()
		}
	})
}
