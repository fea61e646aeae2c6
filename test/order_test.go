package test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/netns"
)

//	namespace a                     pool: 2 or 4 workers              namespace b
//	flows 0…63, each numbered ── e0 ── reader ⇉ rings ⇉ workers ── e0 ── numbers rise

// The workers that share a pair keep the order within each flow, also those that share a CPU: then
// the kernel interrupts one for the other anywhere. The sender may move between CPUs, as
// any does, and its CPU picks the queue by which it sends.
func TestFlowOrder(t *testing.T) {
	needRoot(t)
	frames := 200_000
	if s := os.Getenv("EPAIR_FRAMES"); s != "" {
		if _, err := fmt.Sscan(s, &frames); err != nil {
			t.Fatalf("read EPAIR_FRAMES: %v", err)
		}
	}
	for _, cpus := range []string{"0,1", "0,0,1,1"} {
		for _, c := range []cell{
			{epair.Veth, epair.Veth, "packet", "pool"}, {epair.TAP, epair.TAP, "packet", "pool"}, {epair.Veth, epair.TAP, "packet", "pool"},
			{epair.Veth, epair.Veth, "af_xdp", "pool"},
		} {
			t.Run(c.String()+"/"+cpus, func(t *testing.T) {
				cfg := c.config(cpus)
				d := start(t, cfg)
				born := d.Pairs()[0].AB.Drops // what came before both ends were up
				inOrder(t, frames)
				p := settled(t, d, uint64(frames), born)
				for _, w := range p.AB.Workers[:1+strings.Count(cpus, ",")] { // behind them is the pair's poller
					if w.Tx == 0 {
						t.Errorf("worker %d sent nothing of %d flows: %+v", w.Worker, orderFlows, p.AB.Workers)
					}
				}
			})
		}
	}
}

// settled waits until all frames are accounted for as sent, and none as dropped but for these: a worker counts a batch after
// the far host may have it already.
func settled(t *testing.T, d *control.Daemon, frames uint64, drops map[string]uint64) control.Pair {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p := d.Pairs()[0]
		if p.AB.Queued == 0 && p.AB.Tx >= frames && maps.Equal(p.AB.Drops, drops) {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("ledger after %d frames: %+v", frames, p.AB)
		}
	}
}

const (
	orderFlows  = 64
	orderTicket = 32 // frames that one ticket lets go
	orderAhead  = 4  // tickets: no more frames are under way than half of the smallest queue holds: of 1024 slots that four workers share
	orderMark   = 14 + 20 + 8
)

// inOrder sends frames of many flows from a to b and checks their numbers.
func inOrder(t *testing.T, frames int) {
	t.Helper()
	from, to := orderFar(t, "a"), orderFar(t, "b")
	tickets := make(chan struct{}, orderAhead)
	for range orderAhead {
		tickets <- struct{}{}
	}
	sent := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go func() { sent <- sendFlows(from, frames, tickets, stop) }()
	var next [orderFlows]uint32
	for came, reordered := 0, 0; came < frames; {
		_, f, err := to.Recv(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			t.Fatalf("%d of %d frames came", came, frames)
		}
		if len(f) < orderMark+8 || f[0] != 2 || f[5] != 0x77 {
			continue // what the stack sends
		}
		flow, number := binary.BigEndian.Uint32(f[orderMark:]), binary.BigEndian.Uint32(f[orderMark+4:])
		if number != next[flow] {
			if reordered++; reordered > 10 {
				t.Fatal("and so on")
			}
			t.Errorf("frame %d of flow %d came, want %d", number, flow, next[flow])
		}
		next[flow] = number + 1
		if came++; came%orderTicket == 0 {
			select {
			case tickets <- struct{}{}:
			default: // the sender has all it needs
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func orderFar(t *testing.T, side string) *porttest.PacketFar {
	t.Helper()
	ns, err := netns.Open(nsName(side))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	far, err := porttest.DialFar(&porttest.NS{NS: ns}, "e0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	return far
}

// sendFlows sends runs of one to three frames of a flow, then of the next.
func sendFlows(far *porttest.PacketFar, frames int, tickets, stop <-chan struct{}) error {
	f := orderFrame()
	var next [orderFlows]uint32
	for i, flow, run := 0, 0, 0; i < frames; i++ {
		if i%orderTicket == 0 {
			select {
			case <-tickets:
			case <-stop:
				return nil
			}
		}
		if run == 0 {
			flow, run = (flow+1)%orderFlows, 1+i%3
		}
		run--
		number(f, flow, next[flow])
		next[flow]++
		if err := far.Send(nil, f); err != nil {
			return fmt.Errorf("send frame %d: %w", i, err)
		}
	}
	return nil
}

// orderFrame is a frame to be numbered.
func orderFrame() []byte {
	f := append([]byte{2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 0, 0x78}, ipv4(0x4000, 0, 8+64)...)
	copy(f[14+20:], []byte{0, 0, 0, 9, 0, 8 + 64, 0, 0}) // without a checksum (RFC 768)
	return f
}

// number makes f a flow's frame of that number.
func number(f []byte, flow int, n uint32) {
	binary.BigEndian.PutUint16(f[14+20:], uint16(20000+flow))
	binary.BigEndian.PutUint32(f[orderMark:], uint32(flow))
	binary.BigEndian.PutUint32(f[orderMark+4:], n)
}
