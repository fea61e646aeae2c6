package bpf

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/epair-net/epair/rss/rsstest"
)

// On real interfaces a program sees frames in other shapes than prog.Run's: linear or
// only their Ethernet header, in fragments, with the outermost tag beside it.
// The hash is that of the frame as it was sent.
func TestHooksOnInterfaces(t *testing.T) {
	for _, c := range []struct {
		name      string
		mtu       int
		xdp, ring bool
		nonlinear bool
	}{
		{"tc/linear", 1500, false, false, false},
		{"tc/ring", 1500, false, true, true},
		{"tc/big/ring", 9000, false, true, true},
		{"xdp/linear", 1500, true, false, false},
		{"xdp/ring", 1500, true, true, false}, // veth copies it
		{"xdp/big", 9000, true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			s, d := l.veth(c.mtu)
			w := newWatch(t, l, d, c.xdp)
			send := l.plain(s)
			if c.ring {
				send = l.ring(s)
			}
			w.frames(send, c.mtu)
			if want := c.nonlinear; (w.nonlinear != 0) != want {
				t.Errorf("%d frames weren't linear", w.nonlinear)
			}
		})
	}
}

// watch is a program on an interface.
type watch struct {
	t         *testing.T
	seen      *ebpf.Map
	last      checkCheckSeen
	nonlinear int // frames of which only a part was linear
}

func newWatch(t *testing.T, l *lab, ifindex int, xdp bool) *watch {
	r := mustRSS(t, anyway(t), mustTable(t, "equal 5", 0, 5))
	o := mustCheck(t, r)
	var on link.Link
	l.do(func() (err error) {
		if xdp {
			on, err = link.AttachXDP(link.XDPOptions{Program: o.WatchXdp, Interface: ifindex, Flags: link.XDPDriverMode})
		} else {
			on, err = link.AttachTCX(link.TCXOptions{Program: o.WatchTc, Interface: ifindex, Attach: ebpf.AttachTCXIngress})
		}
		return err
	})
	t.Cleanup(func() { on.Close() })
	return &watch{t: t, seen: o.CheckSeen}
}

// frames sends a thousand frames, one by one, and checks what the program made of each.
func (w *watch) frames(send sender, mtu int) {
	h, table := anyway(w.t), mustTable(w.t, "equal 5", 0, 5)
	gen := rsstest.Frames(int64(mtu))
	for n := 0; n < 1000; {
		f := gen.Next()
		if n == 0 {
			f = edgeFrame()
		}
		if n%2 == 0 && mtu > len(f) { // behind what is hashed: only the length counts
			f = append(f, make([]byte, mtu-len(f))...)
		}
		if !crosses(f, mtu) {
			continue
		}
		n++
		if err := send(f); err != nil {
			w.t.Fatalf("send %x: %v", f, err)
		}
		w.wait(uint64(n), f)
		w.nonlinear += int(w.last.Nonlinear)
		c := w.last.Class
		if err := check(h, table, f, class{c.Hash, c.Bucket, c.Value}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// edgeFrame has its ports half outside the window, but inside it where its tag is kept beside it.
func edgeFrame() []byte {
	f := flowFrame("[2001:db8::1]:40000", "[2001:db8::2]:80", 1)
	ports := len(f) - 26
	f[24] = 60                                             // destination options
	exts := append([]byte{51, 22}, make([]byte, 182)...)   // then an authentication header
	exts = append(append(exts, 6, 1), make([]byte, 10)...) // then TCP
	f = append(append(append([]byte{}, f[:ports]...), exts...), f[ports:]...)
	binary.BigEndian.PutUint16(f[22:], uint16(len(exts)+20))
	return f
}

// wait waits until the program has seen n frames.
func (w *watch) wait(n uint64, f []byte) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Microsecond) {
		if err := w.seen.Lookup(uint32(0), &w.last); err != nil {
			w.t.Fatal(err)
		}
		if w.last.Frames == n {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal(fmt.Errorf("saw %d frames of %d; last sent %x", w.last.Frames, n, f))
		}
	}
}
