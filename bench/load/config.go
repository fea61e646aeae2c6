package load

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epair-net/epair/bench/wire"
)

// Mode is the way frames take into the interface.
type Mode uint8

const (
	Frame Mode = iota // as XDP frames, by a redirect; the interface's peer needs a NAPI (an XDP program, or GRO)
	Skb               // as socket buffers, through the interface's egress hooks and queue; one load a namespace, as all frames pass its lo
)

func (m Mode) String() string {
	if m == Skb {
		return "skb"
	}
	return "frame"
}

// Config says what is sent, where and how fast.
type Config struct {
	NetNS   int   // descriptor of the namespace of the interface, borrowed until New returns
	Ifindex int   // the inner end, that frames leave by
	Also    []int // further ones in the same namespace; flows take turns with them
	Mode    Mode
	CPUs    []int // one generator on each; every one has its own flows
	Flows   int   // of all generators, at least one each
	Size    int   // bytes of a frame without its check sequence
	IMIX    bool  // 28 of 60, 16 of 566 and 4 of 1514 bytes in any 48, in place of Size
	IP6     int   // percent of the flows that are IPv6; their frames have 80 bytes at least, in IMIX in place of 60

	Rate float64 // frames a second of all generators, 0: as fast as they can
	// Burst bounds how late a frame may be sent; later ones are skipped, which makes the run fall short.
	// 0: none is skipped, however late (what measures latency needs that: a stall that delays the load
	// shows in the frames behind it).
	Burst time.Duration

	Seed           uint64 // of the flows' addresses and ports
	SrcMAC, DstMAC wire.MAC
}

// Result is what the generators did.
type Result struct {
	Offered     uint64  // frames given to the interface
	Bytes       uint64  // in them
	Skipped     uint64  // frames too late to be sent
	Missing     uint64  // frames due before the end and neither sent nor skipped
	Seconds     float64 // the time frames were to be sent in, or longer if some were late
	IntendedPPS float64 // 0 at maximum rate
	OfferedPPS  float64
	MaxLate     time.Duration // of a frame that was sent, behind the time it was due
	Spins       uint64        // times that a generator ran and found no frame due, from before the first to behind the last
	Start       time.Duration // CLOCK_MONOTONIC
}

func (c *Config) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.CPUs) == 0 {
		fail("no cpu to generate on")
	}
	for i, cpu := range c.CPUs {
		if cpu < 0 {
			fail("cpu %d: negative", cpu)
		}
		if slices.Contains(c.CPUs[:i], cpu) {
			fail("cpu %d: named twice", cpu)
		}
	}
	if c.Flows < len(c.CPUs) || c.Flows > wire.MaxFlow {
		fail("%d flows: outside %d (one a generator) to %d", c.Flows, len(c.CPUs), wire.MaxFlow)
	}
	if c.Flows < 1+len(c.Also) {
		fail("%d flows for %d interfaces", c.Flows, 1+len(c.Also))
	}
	if !c.IMIX {
		if err := wire.CheckSize(c.Size); err != nil {
			errs = append(errs, err)
		}
		if c.Size > wire.MaxLive && (c.Mode == Frame || len(c.Also) > 0) {
			fail("frames of %d bytes: above %d they go by a packet socket, as socket buffers, into one interface", c.Size, wire.MaxLive)
		}
	}
	if c.IP6 < 0 || c.IP6 > 100 {
		fail("%d percent of ipv6 flows", c.IP6)
	}
	if c.IP6 > 0 && !c.IMIX && c.Size < wire.MinSize6 {
		fail("frames of %d bytes: over ipv6 they have %d at least", c.Size, wire.MinSize6)
	}
	if err := checkRate(c.Rate); err != nil {
		errs = append(errs, err)
	}
	if c.Burst < 0 {
		fail("burst %s: negative", c.Burst)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("create load: %w", err)
	}
	return nil
}

func checkRate(pps float64) error {
	if pps >= 0 && pps <= maxRate {
		return nil
	}
	return fmt.Errorf("rate %g: outside 0 to %g frames a second", pps, float64(maxRate))
}

// maxRate is beyond what any machine's memory carries.
const maxRate = 1e9
