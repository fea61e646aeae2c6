package xdp

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/epair-net/epair/fanout/port"
)

// PairConfig says what to open. Zero sizes take the defaults.
type PairConfig struct {
	A, B EndConfig
	// Workers is how many transmitting halves an end may have open: the workers that
	// forward the pair, 1 in the modes in which one does. 1.
	Workers int
	// Frames is how many frames the pair has room for, both ends together; 4096. A frame takes
	// 2 KiB, above an MTU of 1774 it takes 4.
	Frames int
}

// EndConfig names a device. With Ifindex 0 there is none: the other end of the
// pair is another kind of port, and frames are copied to and from that.
type EndConfig struct {
	NetNS   int // descriptor of the device's network namespace; 0 is the caller's
	Ifindex int
}

// Pair is one or two ends with the memory that they share.
//
// Concurrency contract: Close and Places may be called when no half is in use.
type Pair struct {
	A, B   *End // nil where the config has no device
	umem   *umem
	closed bool
}

// Open opens the ends of a pair and begins to receive: frames wait for OpenRx. All or nothing.
func Open(c PairConfig) (*Pair, error) {
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Frames == 0 {
		c.Frames = 4096
	}
	p := &Pair{}
	ends := []EndConfig{}
	for _, x := range []struct {
		EndConfig
		end **End
	}{{c.A, &p.A}, {c.B, &p.B}} {
		if x.Ifindex != 0 {
			*x.end = &End{ifindex: x.Ifindex, watch: -1, epfd: -1}
			ends = append(ends, x.EndConfig)
		}
	}
	if err := p.open(ends, &c); err != nil {
		return nil, errors.Join(fmt.Errorf("open AF_XDP ports: %w", err), p.close())
	}
	return p, nil
}

// ends returns the ends that there are.
func (p *Pair) ends() []*End {
	var s []*End
	for _, e := range []*End{p.A, p.B} {
		if e != nil {
			s = append(s, e)
		}
	}
	return s
}

func (p *Pair) open(cfg []EndConfig, c *PairConfig) (err error) {
	ends, devices := p.ends(), make([]*device, len(cfg))
	if len(ends) == 0 {
		return errors.New("no device is named")
	}
	mtu, rx := 0, 0
	for i, e := range ends {
		err := inNetNS(cfg[i].NetNS, func() (err error) {
			if e.watch, err = newWatch(e.ifindex); err != nil {
				return err
			}
			devices[i], err = lookUp(e.watch, e.ifindex)
			return err
		})
		if err != nil {
			return err
		}
		d := devices[i]
		e.name = d.name
		if err := errors.Join(d.check(c.Workers), foreign(d)); err != nil {
			return err
		}
		mtu, rx = max(mtu, d.mtu), rx+d.rx
	}
	n, err := divide(c.Frames, rx, len(ends)*c.Workers)
	if err != nil {
		return err
	}
	if p.umem, err = newUMEM(c.Frames, chunkFor(mtu)); err != nil {
		return err
	}
	return p.openEnds(cfg, devices, n, c.Workers)
}

// openEnds makes all sockets, and then lets frames come.
func (p *Pair) openEnds(cfg []EndConfig, devices []*device, n split, senders int) error {
	for i, e := range p.ends() {
		e.umem = p.umem
		if err := inNetNS(cfg[i].NetNS, func() error { return e.open(devices[i], n, senders) }); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	for i, e := range p.ends() {
		if err := inNetNS(cfg[i].NetNS, func() error { return e.redir.attach(devices[i], e.ifindex) }); err != nil {
			return err
		}
	}
	return nil
}

// split says how a UMEM's chunks are divided, per queue. What is left over is for frames in the
// workers' hands. As the parts don't overlap, frames that wait to be sent, however
// long, can't keep a queue from receiving.
type split struct {
	fill int // chunks that the kernel is to have for receiving
	send int // chunks that can be under way out; a power of two
}

// maxSend is four batches. A copy-mode kernel returns most chunks before it returns from the call.
const maxSend = 4 * port.MaxBatch

// minFill and minSend are the least that is of any use.
const minFill, minSend = 8, 4

// divide divides frames among receiving and sending queues.
func divide(frames, receivers, senders int) (split, error) {
	s := split{send: min(floorPow2(frames/4/senders), maxSend)}
	s.fill = (frames - senders*s.send - frames/8) / receivers
	if s.send < minSend || s.fill < minFill {
		return s, fmt.Errorf("divide %d frames among %d receiving and %d sending queues: too few (use %d or more)",
			frames, receivers, senders, max(4*minSend*senders, 2*minFill*receivers))
	}
	return s, nil
}

func floorPow2(n int) int {
	if n < 1 {
		return 0
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

func ceilPow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// Places tells where a pair's frames are. The sum is the Frames of its config, if none is lost or doubled.
type Places struct {
	Free      int // in nobody's hands
	Receiving int // on the rings by which frames arrive, empty or full
	Sending   int // on the rings by which they leave, not returned by the kernel yet
}

// Places counts the frames. Those that a worker holds are in none of the places.
func (p *Pair) Places() Places {
	s := Places{Free: p.umem.free.len()}
	for _, e := range p.ends() {
		e.places(&s)
	}
	return s
}

// Close closes the sockets and frees the memory. All halves must be closed. It says so if frames
// are in no place: they were not released, or lost. It is idempotent.
func (p *Pair) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	if s := p.Places(); s.Free+s.Receiving+s.Sending != p.umem.chunks {
		err = fmt.Errorf("%d frames, but %+v are accounted for; %d descriptors were invalid", p.umem.chunks, s, p.umem.lost.Load())
	}
	if err = errors.Join(err, p.close()); err != nil {
		return fmt.Errorf("close AF_XDP ports: %w", err)
	}
	return nil
}

func (p *Pair) close() error {
	var errs []error
	for _, e := range p.ends() {
		errs = append(errs, e.close())
	}
	if p.umem != nil {
		errs = append(errs, p.umem.close())
	}
	return errors.Join(errs...)
}
