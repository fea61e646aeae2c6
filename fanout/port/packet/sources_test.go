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
		small, g := porttest.TCPFrame(porttest.IPv4, 1000, 400, 0)
		src := porttest.NewSource(frame(1, 60), f, g, frame(2, 60))
		src.SetHdr(1, h)
		src.SetHdr(2, small)
		if sum := send(t, x, src); sum.Frames != 4 {
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
		if want := 20000 - 54 + 1000 - 54; payload != want {
			t.Fatalf("frame %d: %d bytes of payload came, want %d", i, payload, want)
		}
	}
}

// TestQdisc: through a queueing discipline everything arrives too, and what we send there,
// which every packet socket of the interface gets to see, isn't received as if it had come in.
func TestQdisc(t *testing.T) {
	w := newWorld(t, 1500, 4)
	s, err := OpenSender(SenderConfig{NetNS: w.outer.FD(), Qdisc: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rx, far := w.rx(t, w.b, 64), w.far(t, w.b)
	x := w.tx(t, s, w.b)
	h, gso := porttest.TCPFrame(porttest.IPv4, 20000, 1400, 0)
	for range 20 {
		src := porttest.NewSource(frame(1, 60), gso, frame(3, 1500), frame(4, 60))
		src.SetHdr(1, h)
		if sum := send(t, x, src); sum.Frames != 4 {
			t.Fatalf("sent %+v", sum)
		}
		for i, size := range []int{60, len(gso), 1500, 60} {
			if _, f, err := far.Recv(10 * time.Second); err != nil || len(f) != size {
				t.Fatalf("frame %d: came %d bytes, error %v", i, len(f), err)
			}
		}
	}
	if n, err := rx.Receive(make([]port.Frame, port.MaxBatch)); n != 0 || err != nil {
		t.Errorf("read back %d frames, error %v", n, err)
	}
}

// TestServiceTagOnJumbo: an interface takes four bytes more than its MTU, whatever
// they are. The kernel's check in front of the second socket knows only one of the two
// tag types, so a full jumbo frame with the other needs slots that are long enough.
func TestServiceTagOnJumbo(t *testing.T) {
	f := append(frame(0, 9014)[:12:12], 0x88, 0xa8, 0, 100)
	f = append(f, frame(7, 9014)[12:]...)
	for _, c := range []struct {
		name   string
		sender SenderConfig
		want   port.Tally
	}{
		{"short slots", SenderConfig{}, port.Tally{Drops: port.Drops{port.TxMTU: 1}}},
		{"long slots", SenderConfig{Slots: 16, SlotLen: 16384}, port.Tally{Frames: 1, Bytes: 9018}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 9000, 4)
			x, far := w.tx(t, w.senderOf(t, c.sender), w.b), w.far(t, w.b)
			if sum := send(t, x, porttest.NewSource(f)); sum != c.want {
				t.Fatalf("sent %+v, want %+v", sum, c.want)
			}
			if c.want.Frames == 1 {
				if _, got, err := far.Recv(10 * time.Second); err != nil || !bytes.Equal(got, f) {
					t.Fatalf("came %d bytes, error %v", len(got), err)
				}
			}
		})
	}
}
