package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/packet"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// wire is a pair between two veth pairs, by packet sockets.
//
//	far a ── inner a ── outer a [ Rx  pair  Tx ] outer b ── inner b ── far b
//	(own namespace)     (outer namespace)                   (own namespace)
type wire struct {
	pool *Pool
	pair *Pair
	fars [2]*porttest.PacketFar
}

func newWire(t *testing.T, workers int) *wire {
	t.Helper()
	outer := porttest.NewNS(t)
	senders := packet.NewSenders(packet.SenderConfig{NetNS: outer.FD()})
	t.Cleanup(func() { // after the pool was closed
		if err := senders.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &wire{}
	var ends [2]*packet.End
	for i, name := range []string{"a", "b"} {
		v := porttest.NewVeth(t, outer, porttest.NewNS(t), name, 9000, 1)
		ends[i] = &packet.End{RxConfig: packet.RxConfig{NetNS: outer.FD(), Ifindex: v.OuterIndex}, Senders: senders}
		far, err := porttest.DialFar(v.InnerNS, v.Inner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = far.Close() })
		w.fars[i] = far
	}
	w.pool = newPool(t, workers)
	w.pool.giveUp = time.Minute // other programs may keep the CPUs for long
	w.pair = (&rig{pool: w.pool}).add(t, "p", Fanned, ends[0], ends[1])
	return w
}

// stream is one direction of a wire under load.
type stream struct {
	from, to  *porttest.PacketFar
	lossy     bool // send whether it arrives or not
	lane      *Lane
	end, over atomic.Bool // no more is to be sent; was sent
	sent, got atomic.Uint64
	last      [testFlows]atomic.Uint32 // numbers of the frames that arrived
	missed    [testFlows]atomic.Uint32 // of those that were under way when nothing had come for long
}

// under is how many frames of a flow may be under way: all flows together make less than a round of
// the port's 1024 slots, in which a frame that a worker holds stops the others.
const under = 3

// send sends numbered frames of all flows. It keeps to one CPU: the kernel itself lets frames
// overtake each other whose sender moves.
func (s *stream) send(cpu int) error {
	defer s.over.Store(true)
	runtime.LockOSThread() // the thread ends with the goroutine
	if err := pinThread(cpu); err != nil {
		return err
	}
	buf := make([]byte, 4000)
	for n := uint64(0); !s.end.Load(); {
		flow, seq := n%testFlows, uint32(n/testFlows)+1
		// What the pair has sent must arrive: the far socket is nobody's ledger.
		for s.lossy && n%testFlows == 0 && s.lane.ledger().Tx > s.got.Load()+4000 && !s.end.Load() {
			pause()
		}
		if !s.lossy && seq > max(s.last[flow].Load(), s.missed[flow].Load())+under {
			pause()
			continue
		}
		flowFrame(buf, uint16(flow), seq)
		switch err := s.from.Send(nil, buf[:[]int{60, 200, 3000, 100}[n%4]]); {
		case err == nil:
			n++
			s.sent.Store(n)
		case errors.Is(err, unix.ENOBUFS):
		default:
			return err
		}
	}
	return nil
}

// receive checks what arrives until all has, or nothing more comes. A gap is no fault of its own: the kernel's
// queue of a CPU, in front of and behind the pair, is shared with all else that runs.
func (s *stream) receive() error {
	for quiet := 0; !s.over.Load() || s.got.Load() < s.sent.Load(); {
		_, f, err := s.to.Recv(20 * time.Millisecond)
		if err != nil {
			return err
		}
		if f == nil {
			if quiet++; quiet%100 == 0 {
				for i := range s.missed {
					s.missed[i].Store(uint32(s.sent.Load() / testFlows))
				}
			}
			if quiet > 100 && s.over.Load() {
				return nil
			}
			continue
		}
		quiet = 0
		flow, seq := binary.BigEndian.Uint16(f[34:]), binary.BigEndian.Uint32(f[46:])
		if f[12] != 8 || f[13] != 0 || flow >= testFlows {
			continue // the kernel's own
		}
		if was := s.last[flow].Load(); seq <= was {
			return fmt.Errorf("flow %d: frame %d came after %d", flow, seq, was)
		}
		s.last[flow].Store(seq)
		s.got.Add(1)
	}
	return nil
}

// backlogDrops returns how many frames the kernel's queues between interfaces have lost, on
// all CPUs (/proc/net/softnet_stat, second column).
func backlogDrops(t *testing.T) (n uint64) {
	t.Helper()
	b, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		v, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += v
	}
	return n
}

// run runs both directions of a wire until stop is called.
func (w *wire) run(t *testing.T, lossy bool) (streams []*stream, failed *atomic.Bool, stop func()) {
	set, failed := allowed(t), &atomic.Bool{}
	errs := make(chan error, 4)
	run := func(f func() error) {
		err := f()
		if err != nil {
			failed.Store(true)
		}
		errs <- err
	}
	for i := range 2 {
		s := &stream{from: w.fars[i], to: w.fars[1-i], lossy: lossy, lane: w.pair.lanes()[i]}
		streams = append(streams, s)
		go run(func() error { return s.send(set[i%len(set)]) })
		go run(s.receive)
	}
	return streams, failed, func() {
		for _, s := range streams {
			s.end.Store(true)
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
}

// Changes of every kind between real interfaces: nothing is lost, doubled or overtaken.
func TestPacketChangesUnderLoad(t *testing.T) {
	n := 130
	if raceEnabled {
		n = 60
	}
	n, r := changes(t, n)
	w := newWire(t, 4)
	watched, before := monotone(t, w.pair), backlogDrops(t)
	streams, failed, stop := w.run(t, false)
	for range n {
		had := streams[0].got.Load()
		changeOnce(t, r, w.pool, w.pair)
		waitFor(t, "frames arrive after a change", func() bool { return streams[0].got.Load() > had+20 || failed.Load() })
	}
	stop()
	watched()
	outside := backlogDrops(t) - before
	for i, l := range w.pair.lanes() {
		led := settle(t, l)
		if led.Rx != led.Tx {
			t.Errorf("way %d: the pair lost frames: %+v", i, led)
		}
		if s := streams[i]; s.sent.Load()-s.got.Load() > outside {
			t.Errorf("way %d: %d of %d frames arrived, the kernel lost %d", i, s.got.Load(), s.sent.Load(), outside)
		}
	}
	t.Logf("%d and %d frames, %d lost outside; %+v", streams[0].got.Load(), streams[1].got.Load(), outside, w.pool.Fence())
}

// At overload no frame is overtaken either, and what doesn't arrive is in the ledger.
func TestPacketChangesAtOverload(t *testing.T) {
	n, r := changes(t, 50)
	w := newWire(t, 4)
	before := backlogDrops(t)
	streams, _, stop := w.run(t, true)
	for range n {
		changeOnce(t, r, w.pool, w.pair)
	}
	stop()
	for i, l := range w.pair.lanes() {
		led := settle(t, l)
		s := streams[i]
		if led.Rx < s.sent.Load() || led.Tx < s.got.Load() || led.Drops[port.TxGone]+led.Drops[port.TxError]+led.Drops[port.TxInvalid] > 0 {
			t.Errorf("way %d: sent %d, arrived %d, ledger %+v", i, s.sent.Load(), s.got.Load(), led)
		}
		if lost := s.sent.Load() - s.got.Load(); lost > led.Drops.Total()+backlogDrops(t)-before {
			t.Errorf("way %d: %d frames lost, the ledger names %d", i, lost, led.Drops.Total())
		}
		t.Logf("way %d: %d of %d arrived", i, s.got.Load(), s.sent.Load())
	}
	now, past, _ := w.pool.Faults()
	t.Logf("%+v; stuck: %+v %+v", w.pool.Fence(), now, past)
}
