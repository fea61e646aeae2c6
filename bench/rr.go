package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// RTT is a distribution of round-trip times.
type RTT struct {
	h       *hdrhistogram.Histogram
	elapsed time.Duration
}

// newRTT holds 1 ns to 60 s with three digits.
func newRTT() RTT { return RTT{h: hdrhistogram.New(1, int64(time.Minute), 3)} }

// Percentile returns the time that p percent of the round trips didn't exceed.
func (r RTT) Percentile(p float64) time.Duration { return time.Duration(r.h.ValueAtQuantile(p)) }

// Count returns the number of round trips.
func (r RTT) Count() int64 { return r.h.TotalCount() }

// Rate returns the round trips a second of all sessions.
func (r RTT) Rate() float64 { return float64(r.Count()) / r.elapsed.Seconds() }

// Histogram returns the times in ns.
func (r RTT) Histogram() *hdrhistogram.Histogram { return r.h }

// RR asks b from a, one byte at a time over one TCP connection, for d: each
// request waits for the answer to the last.
func RR(ctx context.Context, a, b Host, d time.Duration) (RTT, error) {
	return RRSessions(ctx, a, b, 1, 1, d)
}

// maxExchange bounds the memory of a session.
const maxExchange = 64 << 20

// RRSessions is RR over several connections at once, each with one thread at either end. Requests and answers are of size
// bytes.
//
// The load is closed: a session that waits asks nothing, so times say how long an answer takes, not how long
// a question at any time would have waited.
func RRSessions(ctx context.Context, a, b Host, sessions, size int, d time.Duration) (RTT, error) {
	if size < 1 || size > maxExchange {
		return RTT{}, fmt.Errorf("exchange %d bytes: outside 1 to %d", size, maxExchange)
	}
	calls, err := connections(ctx, a, b, sessions)
	if err != nil {
		return RTT{}, err
	}
	defer calls.close()
	rtts := make([]RTT, sessions)
	start := time.Now()
	err = calls.run(ctx, a, b,
		func(i int, out stream) (err error) { rtts[i], err = ask(out, size, start.Add(d)); return err },
		func(_ int, in stream) error { return answer(in, size) })
	if err != nil {
		return RTT{}, err
	}
	sum := newRTT()
	sum.elapsed = time.Since(start)
	for _, r := range rtts {
		sum.h.Merge(r.h)
	}
	return sum, nil
}

// ask times exchanges until end, one at least.
func ask(out stream, size int, end time.Time) (RTT, error) {
	rtt, buf := newRTT(), make([]byte, size)
	for sent := time.Now(); ; sent = time.Now() {
		if sent.After(end) && rtt.Count() > 0 {
			return rtt, out.finish()
		}
		_, err := out.Write(buf)
		if err == nil {
			_, err = io.ReadFull(out, buf)
		}
		if err != nil {
			return rtt, fmt.Errorf("exchange %d bytes: %w", size, err)
		}
		if err := rtt.h.RecordValue(int64(time.Since(sent))); err != nil {
			return rtt, fmt.Errorf("record round trip: %w", err)
		}
	}
}

// answer sends each size bytes back until the peer has finished.
func answer(in stream, size int) error {
	buf := make([]byte, size)
	for {
		if _, err := io.ReadFull(in, buf); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("answer: %w", err)
		}
		if _, err := in.Write(buf); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}
