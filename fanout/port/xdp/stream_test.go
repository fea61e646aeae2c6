package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
)

// flows is the number of flows of a stream.
const flows = 64

// stream sends numbered frames into ai and checks what comes out of bi, by ports of this kind on
// the inner ends. Both run on goroutines of their own.
type stream struct {
	w        *world
	gen, chk *Pair
	rx       port.Rx
	tx       port.Tx
	window   uint64        // the most frames under way; 0: no limit
	sent     atomic.Uint64 // written by the generator
	got      atomic.Uint64 // written by the checker
	lost     atomic.Uint64 // in front of the checker's port, or not taken from the generator's
	last     [flows]uint32 // number + 1 of the last frame that came, by flow
	corrupt  error         // the first that was wrong
	sending  atomic.Bool
	stop     atomic.Bool
	done     chan struct{}
}

// numbered makes f the seq-th frame.
func numbered(f []byte, seq uint32) {
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, byte(seq % flows), 0x88, 0xb5})
	binary.NativeEndian.PutUint32(f[ethHdrLen:], seq)
	x := uint64(seq)*0x9e3779b97f4a7c15 + uint64(len(f))
	for p := f[ethHdrLen+4:]; len(p) > 0; {
		var w [8]byte
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.NativeEndian.PutUint64(w[:], x)
		p = p[copy(p, w[:]):]
	}
}

// sizeOf is the length of the seq-th frame, mostly small ones.
func sizeOf(seq uint32) uint32 {
	x := seq * 2654435761 >> 8
	if x%4 != 0 {
		return 18 + x/4%110
	}
	return 18 + x/4%1497
}

// memory is a port.Source with a batch of numbered frames.
type memory [port.MaxBatch][1514]byte

func (m *memory) Bytes(f *port.Frame) []byte { return m[f.Slot][:f.Len] }
func (m *memory) Release(int, []port.Frame)  {}

func newStream(t testing.TB, w *world, window uint64) *stream {
	t.Helper()
	s := &stream{w: w, window: window, done: make(chan struct{}, 2)}
	open := func(i int) (*Pair, port.Rx, port.Tx) {
		v := w.veth[i]
		p, err := Open(PairConfig{A: EndConfig{NetNS: v.InnerNS.FD(), Ifindex: v.InnerIndex}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		rx, tx := halves(t, p.A)
		return p, rx, tx
	}
	s.gen, _, s.tx = open(0)
	s.chk, s.rx, _ = open(1)
	return s
}

// start begins to send n frames, or without end if n is 0.
func (s *stream) start(t testing.TB, n uint64) {
	t.Cleanup(func() { s.end(t) })
	s.sending.Store(true)
	go s.generate(n)
	go s.check()
}

func (s *stream) generate(n uint64) {
	defer func() { s.sending.Store(false); s.done <- struct{}{} }()
	var m memory
	var frames [port.MaxBatch]port.Frame
	var tally port.Tally
	for seq := uint64(0); (n == 0 || seq < n) && !s.stop.Load(); {
		k := 0
		for ; k < len(frames) && (n == 0 || seq < n) && (s.window == 0 || seq-s.got.Load()-s.lost.Load() < s.window); k++ {
			frames[k] = port.Frame{Len: sizeOf(uint32(seq)), Slot: uint32(k)}
			numbered(m[k][:frames[k].Len], uint32(seq))
			seq++
		}
		if k == 0 {
			runtime.Gosched()
			continue
		}
		before := tally.Drops.Total()
		s.tx.Send(&m, frames[:k], &tally)
		s.lost.Add(tally.Drops.Total() - before)
		s.sent.Store(seq)
	}
}

func (s *stream) check() {
	defer func() { s.done <- struct{}{} }()
	var b [port.MaxBatch]port.Frame
	want := make([]byte, 1514)
	for {
		n, _ := s.rx.Receive(b[:])
		for i := range b[:n] {
			if err := s.checkFrame(s.rx.Bytes(&b[i]), want); err != nil && s.corrupt == nil {
				s.corrupt = err
			}
		}
		s.rx.Release(0, b[:n])
		s.got.Add(uint64(n))
		if n == 0 {
			if s.stop.Load() {
				return
			}
			runtime.Gosched()
		}
	}
}

func (s *stream) checkFrame(f, want []byte) error {
	if len(f) < ethHdrLen+4 {
		return fmt.Errorf("frame of %d bytes", len(f))
	}
	seq := binary.NativeEndian.Uint32(f[ethHdrLen:])
	want = want[:sizeOf(seq)]
	if numbered(want, seq); !bytes.Equal(f, want) {
		return fmt.Errorf("frame %d: % x… came as % x…", seq, want[:min(len(want), 40)], f[:min(len(f), 40)])
	}
	last := &s.last[seq%flows]
	if seq < *last {
		return fmt.Errorf("frame %d came after %d", seq, *last-1)
	}
	*last = seq + 1
	return nil
}

// wait waits until n frames have come.
func (s *stream) wait(t testing.TB, n uint64) {
	t.Helper()
	for end, got := time.Now().Add(patience), uint64(0); s.got.Load() < n; time.Sleep(time.Millisecond) {
		if now := s.got.Load(); now != got {
			end, got = time.Now().Add(patience), now
		}
		if time.Now().After(end) {
			t.Fatalf("stuck: %d sent, %d came, %d lost", s.sent.Load(), s.got.Load(), s.lost.Load())
		}
	}
}

// end ends both sides and says what was wrong.
func (s *stream) end(t testing.TB) {
	t.Helper()
	if s.stop.Swap(true) {
		return
	}
	<-s.done
	<-s.done
	if s.corrupt != nil {
		t.Error(s.corrupt)
	}
}
