package packet

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// TestOneSenderTwoInterfaces: the kernel takes the interface from each call's address.
func TestOneSenderTwoInterfaces(t *testing.T) {
	w := newWorld(t, 1500, 4)
	s := w.sender(t)
	for round := range 20 {
		for i, v := range []*porttest.Veth{w.a, w.b} {
			n := 100*round + i
			far := w.far(t, v)
			if sum := send(t, w.tx(t, s, v), porttest.NewSource(frame(n, 60), frame(n+10, 1514), frame(n+20, 100))); sum.Frames != 3 {
				t.Fatalf("interface %d: %+v", i, sum)
			}
			expect(t, far, []int{n, n + 10, n + 20})
			_ = far.Close()
		}
	}
	if err := porttest.DeleteLink(w.outer, w.a.Outer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tx(w.a.OuterIndex, w.worker()); !errors.Is(err, port.ErrGone) {
		t.Errorf("open what was deleted: %v, want ErrGone", err)
	}
	if sum := send(t, w.tx(t, s, w.b), porttest.NewSource(frame(1, 60))); sum.Frames != 1 {
		t.Errorf("the other interface: %+v", sum)
	}
}

// TestPlainSource: frames of a port that has no virtio_net_hdr get an empty one.
func TestPlainSource(t *testing.T) {
	w := newWorld(t, 9000, 4)
	x, far := w.tx(t, w.sender(t), w.b), w.far(t, w.b)
	src := plainSource{frame(0, 60), frame(1, 1500), frame(2, 5000), frame(3, 2000), frame(4, 2010)}
	b := make([]port.Frame, len(src))
	for i := range src {
		b[i] = port.Frame{Len: uint32(len(src[i])), Slot: uint32(i)}
	}
	var sum port.Tally
	x.Send(src, b, &sum)
	if sum.Frames != 5 {
		t.Fatalf("sent %+v", sum)
	}
	for i := range src {
		h, f, err := far.Recv(10 * time.Second)
		if err != nil || !bytes.Equal(f, src[i]) || h.Flags() != 0 || h.GSOType() != 0 {
			t.Fatalf("frame %d: %d bytes, header % x, error %v", i, len(f), h, err)
		}
	}
}

type plainSource [][]byte

func (s plainSource) Bytes(f *port.Frame) []byte { return s[f.Slot] }
func (plainSource) Release(int, []port.Frame)    {}

// TestSoftwareSegmentation: what the far side doesn't take whole, the kernel
// segments, and after a while the far side is asked again.
func TestSoftwareSegmentation(t *testing.T) {
	w := newWorld(t, 1500, 4)
	x, far := w.tx(t, w.sender(t), w.b), w.far(t, w.b)
	attachPass(t, w.b)
	for i := range softRun + 2 {
		h, f := porttest.TCPFrame(porttest.IPv4, 20000, 1400, 0)
		src := porttest.NewSource(frame(1, 60), f, frame(2, 60))
		src.SetHdr(1, h)
		if sum := send(t, x, src); sum.Frames != 3 {
			t.Fatalf("frame %d: %+v", i, sum)
		}
		payload := 0
		for {
			_, f, err := far.Recv(10 * time.Second)
			if err != nil || f == nil || len(f) > 1514 {
				t.Fatalf("frame %d: came %d bytes, error %v", i, len(f), err)
			}
			if len(f) > 60 {
				payload += len(f) - 54
			} else if number(f) == 2 {
				break
			}
		}
		if payload != 20000-54 {
			t.Fatalf("frame %d: %d bytes of payload came", i, payload)
		}
	}
}
