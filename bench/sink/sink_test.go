package sink

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/wire"
)

const (
	testRun   = 7
	testFlows = 8
)

// rig runs the sink's programs on single frames, without any interface.
type rig struct {
	t       *testing.T
	s       *Sink
	prog    *ebpf.Program
	verdict uint32
	headers []wire.Header
}

// rigs runs a test for both programs.
func rigs(t *testing.T, fn func(*rig)) {
	s := &Sink{cfg: Config{Flows: testFlows}}
	err := s.load()
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_BPF and CAP_NET_ADMIN)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	headers := wire.Headers(testFlows, 1, wire.MAC{2}, wire.MAC{2})
	for name, r := range map[string]*rig{
		"xdp": {s: s, prog: s.objs.SinkXdp, verdict: 1, headers: headers},
		"tcx": {s: s, prog: s.objs.SinkTcx, verdict: 2, headers: headers},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			if err := s.Reset(testRun); err != nil {
				t.Fatal(err)
			}
			fn(r)
		})
	}
}

// frame is one of the load's, of 60 bytes.
func (r *rig) frame(st wire.Stamp) []byte {
	f := make([]byte, wire.MinSize)
	copy(f, r.headers[st.Flow%testFlows][:])
	binary.BigEndian.PutUint16(f[16:], wire.MinSize-14)
	binary.BigEndian.PutUint16(f[18:], st.Run)
	binary.NativeEndian.PutUint16(f[42:], st.Flow)
	binary.NativeEndian.PutUint32(f[44:], st.Seq)
	binary.NativeEndian.PutUint64(f[48:], st.Due)
	binary.NativeEndian.PutUint32(f[56:], st.Late)
	return f
}

func (r *rig) give(frame []byte) (verdict uint32) {
	r.t.Helper()
	verdict, _, err := r.prog.Test(frame)
	if err != nil {
		r.t.Fatal(err)
	}
	return verdict
}

func (r *rig) seq(flow uint16, seq uint32) {
	r.t.Helper()
	if v := r.give(r.frame(wire.Stamp{Run: testRun, Flow: flow, Seq: seq})); v != r.verdict {
		r.t.Fatalf("verdict %d, want %d", v, r.verdict)
	}
}

func (r *rig) read() Result {
	r.t.Helper()
	got, err := r.s.Read()
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) want(delivered, lost, reordered, duplicated, stale uint64) {
	r.t.Helper()
	got := r.read()
	if got.Delivered != delivered || got.Lost != lost || got.Reordered != reordered || got.Duplicated != duplicated || got.Stale != stale {
		r.t.Errorf("delivered %d, lost %d, reordered %d, duplicated %d, stale %d; want %d, %d, %d, %d, %d",
			got.Delivered, got.Lost, got.Reordered, got.Duplicated, got.Stale, delivered, lost, reordered, duplicated, stale)
	}
	if n := delivered - duplicated; got.Bytes != n*wire.MinSize {
		r.t.Errorf("%d bytes of %d frames", got.Bytes, n)
	}
}

func TestSequences(t *testing.T) {
	for _, c := range []struct {
		name                                          string
		seqs                                          []uint32
		delivered, lost, reordered, duplicated, stale uint64
	}{
		{"none", nil, 0, 0, 0, 0, 0},
		{"in order", []uint32{0, 1, 2, 3}, 4, 0, 0, 0, 0},
		{"first lost", []uint32{1, 2}, 2, 1, 0, 0, 0},
		{"hole", []uint32{0, 1, 5, 6}, 4, 3, 0, 0, 0},
		{"swap", []uint32{0, 2, 1, 3}, 4, 0, 1, 0, 0},
		{"late by three", []uint32{0, 2, 3, 4, 1}, 5, 0, 1, 0, 0},
		{"early by three", []uint32{0, 4, 1, 2, 3, 5}, 6, 0, 3, 0, 0},
		{"repeat", []uint32{0, 1, 1, 2}, 4, 0, 0, 1, 0},
		{"first repeated", []uint32{0, 0, 0}, 3, 0, 0, 2, 0},
		{"late repeat", []uint32{0, 1, 2, 3, 1}, 5, 0, 0, 1, 0},
		{"late and repeated", []uint32{0, 2, 1, 1}, 4, 0, 1, 1, 0},
		{"within the window", []uint32{0, 961, 1}, 3, 959, 1, 0, 0},
		{"jump of many windows, one from before", []uint32{0, 1 << 20, 5}, 3, 1<<20 - 2, 1, 0, 1},
		{"repeat out of the window", []uint32{0, 1024, 0}, 3, 1022, 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rigs(t, func(r *rig) {
				for _, s := range c.seqs {
					r.seq(3, s)
				}
				r.want(c.delivered, c.lost, c.reordered, c.duplicated, c.stale)
			})
		})
	}
}

// model is what sequence figures mean, without a window.
type model struct {
	next                             uint32
	came                             map[uint32]bool
	delivered, reordered, duplicated uint64
}

func (m *model) take(seq uint32) {
	m.delivered++
	switch {
	case m.came[seq]:
		m.duplicated++
	case seq < m.next:
		m.reordered++
	default:
		m.next = seq + 1
	}
	m.came[seq] = true
}

// Within the window, random losses, repeats and displacements are counted as a model without one does.
func TestRandomSequencesAsModel(t *testing.T) {
	rigs(t, func(r *rig) {
		models := make([]model, testFlows)
		for i := range models {
			models[i].came = map[uint32]bool{}
		}
		for range 12_000 {
			flow := uint16(rand.IntN(testFlows))
			m := &models[flow]
			seq := uint32(max(0, int(m.next)+rand.IntN(20)-rand.IntN(900)*rand.IntN(2)))
			m.take(seq)
			r.seq(flow, seq)
		}
		var delivered, lost, reordered, duplicated uint64
		for _, m := range models {
			delivered += m.delivered
			lost += uint64(m.next) - uint64(len(m.came))
			reordered += m.reordered
			duplicated += m.duplicated
		}
		r.want(delivered, lost, reordered, duplicated, 0)
	})
}

// What isn't the run's is told apart; what isn't a load's goes on.
func TestStrays(t *testing.T) {
	rigs(t, func(r *rig) {
		other := r.frame(wire.Stamp{Run: testRun - 1})
		flow := r.frame(wire.Stamp{Run: testRun, Flow: testFlows})
		cut := append(r.frame(wire.Stamp{Run: testRun}), 0, 0)
		for _, f := range [][]byte{other, flow, cut} {
			if v := r.give(f); v != r.verdict {
				t.Errorf("verdict %d for a stray", v)
			}
		}
		foreign := r.frame(wire.Stamp{Run: testRun})
		foreign[27] = 20
		for _, f := range [][]byte{foreign, foreign[:40]} {
			if v := r.give(f); v == r.verdict {
				t.Errorf("a foreign frame of %d bytes was dropped", len(f))
			}
		}
		r.want(0, 0, 0, 0, 0)
		if got := r.read(); got.Stray != 3 {
			t.Errorf("%d strays, want 3", got.Stray)
		}
	})
}

func TestResetForgets(t *testing.T) {
	rigs(t, func(r *rig) {
		for _, s := range []uint32{0, 5, 3, 3} {
			r.seq(1, s)
		}
		if err := r.s.Reset(testRun); err != nil {
			t.Fatal(err)
		}
		r.want(0, 0, 0, 0, 0)
		if got := r.read(); got.First != 0 || got.Last != 0 || got.LongestGap != 0 || len(got.Timeline) != 0 || got.Latency.TotalCount() != 0 {
			t.Errorf("after a reset: %+v", got)
		}
		r.seq(1, 0)
		r.want(1, 0, 0, 0, 0)
	})
}

func TestFlowsAreChecked(t *testing.T) {
	for _, flows := range []int{0, -1, wire.MaxFlow + 1} {
		if s, err := New(Config{Flows: flows}); err == nil {
			s.Close()
			t.Errorf("%d flows: made", flows)
		}
	}
}

// Two CPUs that meet in a flow, frame by frame, count each exactly once.
func TestCPUsMeet(t *testing.T) {
	const chunk, chunks = 256, 20
	rigs(t, func(r *rig) {
		for c := range chunks {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					for i := range chunk {
						if _, _, err := r.prog.Test(r.frame(wire.Stamp{Run: testRun, Flow: 2, Seq: uint32(c*chunk + i)})); err != nil {
							t.Error(err)
						}
					}
				})
			}
			both.Wait()
		}
		got := r.read()
		if got.Delivered != 2*chunk*chunks || got.Duplicated != chunk*chunks || got.Lost != 0 || got.Stale != 0 {
			t.Errorf("of %d frames, each twice: %+v", chunk*chunks, got)
		}
	})
}

// A coarse sink counts every frame, and takes the time of every eighth.
func TestCoarse(t *testing.T) {
	rigs(t, func(r *rig) {
		r.s.Coarse = true
		defer func() { r.s.Coarse = false }()
		if err := r.s.Reset(testRun); err != nil {
			t.Fatal(err)
		}
		for s := range uint32(32) {
			r.seq(1, s+s/16) // one is missing
		}
		r.want(32, 1, 0, 0, 0)
		got, line := r.read(), uint64(0)
		for _, n := range got.Timeline {
			line += n
		}
		// The test may have run on several CPUs, each of which begins with its first frame.
		if n := got.Latency.TotalCount(); n < 4 || n > 4+int64(ebpf.MustPossibleCPU()) || line != 8*uint64(n) || got.First == 0 {
			t.Errorf("times of %d frames, timeline of %d: %+v", n, line, got)
		}
	})
}
