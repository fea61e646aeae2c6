// Package memport is a network interface in memory, for the tests of what is
// built on ports: no privilege, no kernel, exact and repeatable.
//
//	Inject(q) ──▶ queue q ──▶ Rx of the q-th OpenRx
//	Capture() ◀── one queue ◀── every Tx
package memport

import (
	"fmt"
	"sync"

	"github.com/epair-net/epair/fanout/port"
)

// Config says how large a Device is. Zero fields take the defaults.
type Config struct {
	Slots   int // frames that wait in one receive queue; 256
	SlotLen int // longest frame that a slot holds, a longer one takes an Arena buffer; 2048
	MTU     int // what Send takes, without Ethernet header and one tag, unless it is GSO; 1500
	Out     int // frames that wait for Capture; 1024
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Slots, 256}, {&c.SlotLen, 2048}, {&c.MTU, 1500}, {&c.Out, 1024}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

// Device is the interface. It implements port.Opener.
//
// Concurrency contract: any goroutine may call any method.
type Device struct {
	cfg    Config
	mu     sync.Mutex // guards all below; an Rx's own mutex may be taken inside it, not the reverse
	queues []*Rx      // in the order of OpenRx
	down   bool
	gone   bool
	out    [][]byte // ring of frames that left, each behind its virtio_net_hdr
	first  int      // the oldest
	count  int
}

// New returns a Device that is up.
func New(cfg Config) *Device {
	cfg.setDefaults()
	d := &Device{cfg: cfg, out: make([][]byte, cfg.Out)}
	for i := range d.out {
		d.out[i] = make([]byte, 0, port.VNetHdrLen+cfg.MTU+18) // only GSO frames are longer
	}
	return d
}

// OpenRx adds a receive queue. Queues are numbered in the order of their opening.
func (d *Device) OpenRx(w port.Worker) (port.Rx, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return nil, fmt.Errorf("open memory port: %w", port.ErrGone)
	}
	r, err := newRx(&d.cfg, w)
	if err != nil {
		return nil, err
	}
	d.queues = append(d.queues, r)
	return r, nil
}

// OpenTx adds a sender.
func (d *Device) OpenTx(w port.Worker) (port.Tx, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return nil, fmt.Errorf("open memory port: %w", port.ErrGone)
	}
	return &Tx{d: d, worker: w.ID}, nil
}

// Inject lets a frame arrive at a queue, with its virtio_net_hdr or nil for a
// plain frame. It reports whether the frame was taken; while the device is up, one that was not is counted as RxRingFull.
func (d *Device) Inject(queue int, hdr, frame []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down || d.gone || queue >= len(d.queues) {
		return false
	}
	return d.queues[queue].put(hdr, frame)
}

// Capture moves the oldest frame that left into buf, behind its virtio_net_hdr, and
// returns the length of both; 0 if there is none.
func (d *Device) Capture(buf []byte) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 {
		return 0
	}
	n := copy(buf, d.out[d.first])
	d.first = (d.first + 1) % len(d.out)
	d.count--
	return n
}

// SetLink sets the device up or down. While it is down nothing arrives, and what is sent is dropped.
func (d *Device) SetLink(up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down == !up {
		return
	}
	if d.down = !up; d.down {
		d.tell(port.ErrDown)
	}
}

// Delete removes the device: what is left of it is ErrGone and TxGone.
func (d *Device) Delete() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = true
	d.tell(port.ErrGone)
}

func (d *Device) tell(err error) {
	for _, r := range d.queues {
		r.fail(err)
	}
}

// room returns where the next frame that leaves goes, or the reason why it can't.
// The caller holds mu.
func (d *Device) room(hdr, frame []byte) (*[]byte, port.Reason) {
	switch gso := hdr[1] != 0; {
	case d.gone:
		return nil, port.TxGone
	case d.down:
		return nil, port.TxLinkDown
	case !gso && len(frame) > d.cfg.MTU+14+4:
		return nil, port.TxMTU
	case d.count == len(d.out):
		return nil, port.TxBusy
	}
	d.count++
	return &d.out[(d.first+d.count-1)%len(d.out)], 0
}
