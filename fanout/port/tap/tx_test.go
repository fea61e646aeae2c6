package tap

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// bare is a source of frames without virtio_net_hdr.
type bare struct {
	frames   [][]byte
	released int
}

func (s *bare) Bytes(f *port.Frame) []byte { return s.frames[f.Slot] }

func (s *bare) Release(_ int, b []port.Frame) { s.released += len(b) }

func (s *bare) batch() []port.Frame {
	var b []port.Frame
	for i, f := range s.frames {
		b = append(b, port.Frame{Len: uint32(len(f)), Slot: uint32(i)})
	}
	return b
}

func TestSendWithoutHeader(t *testing.T) {
	d := newTAP(t, "tap0", 1500)
	_, tx := d.open(t, port.Worker{}, 1500)
	far := d.far(t)
	src := &bare{}
	for i, size := range []int{14, 15, 59, 60, 61, 512, 1513, 1514, 1518, 1519, 60} {
		src.frames = append(src.frames, numbered(3, uint32(i), size))
	}
	b := src.batch()
	var got port.Tally
	tx.Send(src, b, &got)
	if src.released != len(b) || int(got.Frames) != len(b)-1 || got.Drops[port.TxMTU] != 1 {
		t.Errorf("%d of %d frames released, %+v, want one tx_mtu", src.released, len(b), got)
	}
	for i, want := range src.frames {
		if len(want) == 1519 {
			continue
		}
		if h, f, err := far.Recv(patience); err != nil || !bytes.Equal(f, want) || h != (porttest.Hdr{}) {
			t.Errorf("frame %d of %d bytes came as %d, header % x: %v", i, len(want), len(f), h, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { tx.Send(src, b, &got) }); n != 0 {
		t.Errorf("%v allocations a batch, want 0", n)
	}
}

// segmented returns a TCP frame with a payload of the given size and its header fields.
func segmented(payload int) (f []byte, hdrLen, start uint16) {
	f = make([]byte, 54+payload)
	f[0], f[6], f[12] = 2, 2, 8
	copy(f[14:], []byte{0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	copy(f[34:], []byte{0x1f, 0x90, 0x1f, 0x91, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0})
	return f, 54, 34
}

// Headers as other kernels and ports write them, and some that nobody may.
func TestSendHeaders(t *testing.T) {
	const csum, dataValid, rscInfo = porttest.NeedsCsum, 2, 4
	tcp, hdrLen, start := segmented(3000)
	small, _, _ := segmented(500)
	d := newTAP(t, "tap0", 1500)
	_, tx := d.open(t, port.Worker{}, 1500)
	far := d.far(t)
	size := uint16(len(tcp))
	for _, c := range []struct {
		name  string
		frame []byte
		hdr   porttest.Hdr
		left  bool
	}{
		{"nothing", small, porttest.NewHdr(0, 0, 0, 0, 0, 0), true},
		{"checksum", small, porttest.NewHdr(csum, 0, 0, 0, start, 16), true},
		{"checksum, whole frame linear", small, porttest.NewHdr(csum, 0, uint16(len(small)), 0, start, 16), true},
		{"whole frame linear", small, porttest.NewHdr(0, 0, uint16(len(small)), 0, 0, 0), true},
		{"checksum known to be good", small, porttest.NewHdr(dataValid, 0, 0, 0, 0, 0), true},
		{"segment counts", small, porttest.NewHdr(dataValid|rscInfo, 0, 0, 0, 2, 0), true},
		{"tcp", tcp, porttest.NewHdr(csum, porttest.GSOTCP4, hdrLen, 1400, start, 16), true},
		{"tcp, no header length", tcp, porttest.NewHdr(csum, porttest.GSOTCP4, 0, 1400, start, 16), true},
		{"tcp, whole frame linear", tcp, porttest.NewHdr(csum, porttest.GSOTCP4, size, 1400, start, 16), true},
		{"tcp, checksum known to be good", tcp, porttest.NewHdr(dataValid, porttest.GSOTCP4, hdrLen, 1400, 0, 0), true},
		{"tcp, ecn", tcp, porttest.NewHdr(csum, porttest.GSOTCP4|porttest.GSOECN, hdrLen, 1400, start, 16), true},
		{"tcp, as long as one segment", small, porttest.NewHdr(csum, porttest.GSOTCP4, hdrLen, 500, start, 16), true},
		{"tcp, shorter than one segment", small, porttest.NewHdr(csum, porttest.GSOTCP4, hdrLen, 1400, start, 16), true},
		{"longer header than frame", small, porttest.NewHdr(0, 0, uint16(len(small)+1), 0, 0, 0), false},
		{"header shorter than ethernet's", small, porttest.NewHdr(0, 0, 13, 0, 0, 0), false},
		{"checksum behind the frame", small, porttest.NewHdr(csum, 0, 0, 0, uint16(len(small)), 0), false},
		{"segments of nothing", tcp, porttest.NewHdr(csum, porttest.GSOTCP4, hdrLen, 0, start, 16), false},
		{"unknown kind", tcp, porttest.NewHdr(csum, 9, hdrLen, 1400, start, 16), false},
	} {
		t.Run(c.name, func(t *testing.T) { sendHeader(t, tx, far, c.frame, c.hdr, c.left) })
	}
}

// sendHeader sends a frame between two others.
func sendHeader(t *testing.T, tx port.Tx, far *porttest.PacketFar, frame []byte, hdr porttest.Hdr, left bool) {
	src := porttest.NewSource(numbered(1, 1, 60), frame, numbered(1, 2, 60))
	src.SetHdr(1, hdr)
	var got port.Tally
	tx.Send(src, src.Frames(), &got)
	want := [][]byte{numbered(1, 1, 60), frame, numbered(1, 2, 60)}
	if !left {
		want = [][]byte{want[0], want[2]}
		if got.Drops[port.TxInvalid] != 1 {
			t.Errorf("drops %v, want one tx_invalid", got.Drops)
		}
	}
	if int(got.Frames) != len(want) || got.Frames+got.Drops.Total() != 3 {
		t.Errorf("%+v, want %d frames", got, len(want))
	}
	if err := src.Check(); err != nil {
		t.Error(err)
	}
	for i, w := range want {
		if _, f, err := far.Recv(patience); err != nil || !bytes.Equal(f, w) {
			t.Fatalf("frame %d of %d bytes came as %d: %v", i, len(w), len(f), err)
		}
	}
}

// The device's MTU counts as it is now: a larger one at once, a smaller one when the counters
// were read, whichever worker sends.
func TestMTUChanges(t *testing.T) {
	d := newTAP(t, "tap0", 1500)
	e, err := New(d.fd, 1500)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := e.OpenRx(port.Worker{})
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	var txs [2]port.Tx
	for i := range txs {
		if txs[i], err = e.OpenTx(port.Worker{ID: i}); err != nil {
			t.Fatal(err)
		}
		defer txs[i].Close()
	}
	src := porttest.NewSource(numbered(0, 1, 9014))
	for i, c := range []struct{ mtu, left int }{{1500, 0}, {9000, 1}, {8995, 0}, {8996, 1}, {1500, 0}, {9500, 1}} {
		setMTU(t, d.ns, d.name, c.mtu)
		if c.left == 0 {
			rx.Stats()
		}
		tx := txs[i%2].(*Tx)
		tx.asked = time.Time{} // as if it was long ago
		var got port.Tally
		tx.Send(src, src.Frames(), &got)
		if int(got.Frames) != c.left || int(got.Drops[port.TxMTU]) != 1-c.left {
			t.Errorf("mtu %d: %+v, want %d sent", c.mtu, got, c.left)
		}
	}
	// Nobody is asked again for each frame.
	setMTU(t, d.ns, d.name, 1500)
	rx.Stats()
	tx := txs[0].(*Tx)
	asked := time.Now()
	tx.asked = asked
	var got port.Tally
	tx.Send(src, src.Frames(), &got)
	if tx.asked != asked && time.Since(asked) < askEvery || got.Drops[port.TxMTU] != 1 {
		t.Errorf("asked again after %v: %+v", time.Since(asked), got)
	}
}

// Four workers write to one queue at the same time: every frame comes out whole, and each
// worker's in the order in which it wrote them.
func TestConcurrentWriters(t *testing.T) {
	const writers, frames = 4, 8000
	d := newTAP(t, "tap0", 1500)
	far := d.far(t)
	e, err := New(d.fd, 1500)
	if err != nil {
		t.Fatal(err)
	}
	var left [writers]port.Tally
	var wg sync.WaitGroup
	for w := range writers {
		tx, err := e.OpenTx(port.Worker{ID: w})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			writeNumbered(tx, byte(w), frames, &left[w])
		}()
	}
	defer wg.Wait()
	var next [writers]uint32
	for range writers * frames {
		_, f, err := far.Recv(patience)
		if err != nil || f == nil {
			t.Fatalf("frames stopped after %v: %v", next, err)
		}
		w, seq := numberOf(f)
		if seq != next[w] || !bytes.Equal(f, numbered(w, seq, sizeOf(seq))) {
			t.Fatalf("writer %d: frame %d came as frame %d of %d bytes", w, next[w], seq, len(f))
		}
		next[w]++
	}
	wg.Wait()
	for w := range left {
		if left[w].Frames != frames {
			t.Errorf("writer %d: %+v", w, left[w])
		}
	}
}

func sizeOf(seq uint32) int { return 20 + int(seq*769%1495) }

func writeNumbered(tx port.Tx, writer byte, frames uint32, t *port.Tally) {
	for seq := uint32(0); seq < frames; {
		var batch [][]byte
		for len(batch) < port.MaxBatch && seq < frames {
			batch = append(batch, numbered(writer, seq, sizeOf(seq)))
			seq++
		}
		src := porttest.NewSource(batch...)
		tx.Send(src, src.Frames(), t)
	}
}
