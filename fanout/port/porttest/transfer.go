package porttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/epair-net/epair/fanout/port"
)

// testEmpty: Receive with nothing there returns nothing, at once.
func testEmpty(t *testing.T, l *lab) {
	for _, e := range []*End{&l.A, &l.B} {
		for range 3 {
			if n, err := e.Rx.Receive(l.batch); n != 0 || err != nil {
				t.Errorf("receive with nothing there: %d frames, error %v", n, err)
			}
		}
		if n, err := e.Rx.Receive(nil); n != 0 || err != nil {
			t.Errorf("receive into no room: %d frames, error %v", n, err)
		}
		if s := e.Rx.Stats(); s.Drops.Total() != 0 {
			t.Errorf("drops of an idle port: %v", s.Drops)
		}
		var sum port.Tally
		e.Tx.Send(NewSource(), nil, &sum)
		if sum != (port.Tally{}) {
			t.Errorf("sending nothing counted %+v", sum)
		}
	}
}

// testBytes: frames of all lengths cross unchanged and in order, both ways.
func testBytes(t *testing.T, l *lab) {
	burst := min(l.caps.Ring/2, 48)
	for _, dir := range [][2]*End{{&l.A, &l.B}, {&l.B, &l.A}} {
		from, to := dir[0], dir[1]
		all := sizes(4000, l.caps.MaxFrame)
		var bytes uint64
		for base := 0; base < len(all); base += burst {
			run := all[base:min(base+burst, len(all))]
			for i, size := range run {
				l.inject(t, from, nil, newFrame(uint32(base+i), size))
				bytes += uint64(size)
			}
			l.forwardAll(t, from, to)
			for i, size := range run {
				_, f := l.expect(t, to)
				if err := check(f, uint32(base+i), size); err != nil {
					t.Fatalf("frame %d: %v", base+i, err)
				}
			}
		}
		l.expectNone(t, to)
		if got := *l.tally[to]; got != (port.Tally{Frames: uint64(len(all)), Bytes: bytes}) {
			t.Errorf("tally %+v, want %d frames, %d bytes", got, len(all), bytes)
		}
	}
}

// testEthertypes: a cable doesn't look at what it carries.
func testEthertypes(t *testing.T, l *lab) {
	addresses := [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, // broadcast
		{1, 0, 0x5e, 0, 0, 1},                // IPv4 all hosts
		{0x33, 0x33, 0, 0, 0, 1},             // IPv6 all nodes
		{1, 0x80, 0xc2, 0, 0, 0},             // 802.1D: what a bridge keeps
		{1, 0x80, 0xc2, 0, 0, 0xe},           // LLDP
		{2, 0, 0, 0, 0, 1},                   // somebody else
		{0, 0, 0, 0, 0, 0},
	}
	types := []uint16{0, 4, 46, 1500, 0x0600, 0x0800, 0x0806, 0x86dd, 0x8847, 0x8863, 0x8864, 0x888e, 0x88cc, 0x88e5, 0x88f7, 0x9000, 0xffff}
	for _, dst := range addresses {
		for _, typ := range types {
			f := newFrame(7, 60)
			copy(f, dst)
			binary.BigEndian.PutUint16(f[12:], typ)
			l.cross(t, &l.A, &l.B, nil, f, fmt.Sprintf("type %04x to % x", typ, dst))
		}
	}
	l.expectNone(t, &l.B)
}

// cross sends one frame all the way and compares it. It returns the header that came out.
func (l *lab) cross(t *testing.T, from, to *End, h *Hdr, f []byte, what string) Hdr {
	t.Helper()
	l.inject(t, from, h, f)
	l.forwardAll(t, from, to)
	if n := l.tally[to].Drops.Total(); n != 0 {
		t.Fatalf("%s: drops %v", what, l.tally[to].Drops)
	}
	out, got := l.expect(t, to)
	if err := differ(got, f); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return out
}

// tag returns f with VLAN tags behind its addresses, outermost first: TPID in the
// upper half, TCI in the lower.
func tag(f []byte, tags ...uint32) []byte {
	out := append([]byte(nil), f[:macLen]...)
	for _, v := range tags {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return append(out, f[macLen:]...)
}

// stacks are the tags that frames carry in the field.
func stacks() [][]uint32 {
	return [][]uint32{
		{0x8100_0064},
		{0x8100_0000},              // priority tag, priority 0
		{0x8100_a000},              // priority tag, priority 5
		{0x8100_1fff},              // DEI set, ID 4095
		{0x88a8_0064},              // service tag alone
		{0x88a8_0064, 0x8100_00c8}, // QinQ
		{0x8100_0064, 0x8100_0064}, // QinQ with equal IDs
		{0x88a8_0064, 0x88a8_0064},
		{0x9100_0064, 0x8100_0001}, // an old QinQ type
		{0x8100_0001, 0x8100_0002, 0x8100_0003},
		{0x8100_0064, 0x8100_0000},
	}
}

// testVLAN: tags survive exactly, on short frames and on full ones. The shortest
// has two bytes behind its ethertype: without them the kernel drops a tagged
// frame before anyone sees it (skb_vlan_untag).
func testVLAN(t *testing.T, l *lab) {
	for _, tags := range stacks() {
		for _, size := range []int{16, 17, 46, 60, 256, 1000, 1500, 1952, 1956, 2000} {
			if size > l.caps.MaxFrame-8 {
				continue
			}
			f := tag(newFrame(uint32(size), size), tags...)
			l.cross(t, &l.A, &l.B, nil, f, fmt.Sprintf("tags %x, %d bytes", tags, size))
			l.cross(t, &l.B, &l.A, nil, f, fmt.Sprintf("tags %x, %d bytes, back", tags, size))
		}
	}
	// One tag is allowed on top of the longest frame.
	f := tag(newFrame(1, l.caps.MaxFrame), 0x8100_0064)
	l.cross(t, &l.A, &l.B, nil, f, "one tag on the longest frame")
}

// testBatch: never more frames than asked for, and all of them in the end.
func testBatch(t *testing.T, l *lab) {
	all := l.batch
	total := uint32(0)
	for _, room := range []int{1, 2, 3, 31, 32, 33, port.MaxBatch} {
		burst := min(l.caps.Ring/2, 2*room+1)
		for i := range burst {
			l.inject(t, &l.A, nil, newFrame(total+uint32(i), 60+i))
		}
		l.batch = all[:room]
		l.forwardAll(t, &l.A, &l.B)
		for i := range burst {
			_, f := l.expect(t, &l.B)
			if err := check(f, total+uint32(i), 60+i); err != nil {
				t.Fatalf("room for %d, frame %d: %v", room, i, err)
			}
		}
		total += uint32(burst)
	}
}

// testConservation: what is injected while nobody receives is received or
// counted, and what is sent comes out or is counted.
func testConservation(t *testing.T, l *lab) {
	for round := range 3 {
		for i := range 3*l.caps.Ring + 7 {
			err := l.A.Far.Send(nil, newFrame(uint32(i), 60+i%1000))
			if err == nil {
				l.sent[&l.A]++ // not taken is not our port's business
			}
		}
		l.forwardAll(t, &l.A, &l.B)
		s := l.tally[&l.B]
		if s.Frames+s.Drops.Total() != l.rx[&l.A] {
			t.Fatalf("round %d: received %d, sent %d, drops %v", round, l.rx[&l.A], s.Frames, s.Drops)
		}
	}
	came, last := uint64(0), -1
	for came < l.tally[&l.B].Frames {
		_, f := l.expect(t, &l.B)
		if err := check(f, seqOf(f), len(f)); err != nil {
			t.Fatal(err)
		}
		if s := int(seqOf(f)); s <= last && s > 3*l.caps.Ring/2 {
			t.Fatalf("frame %d came after %d", s, last) // a small number after a great one starts the next round
		} else {
			last = s
		}
		came++
	}
	l.expectNone(t, &l.B)
}

// testEcho: what a port sends is never received by it, nor by its own end.
func testEcho(t *testing.T, l *lab) {
	for _, e := range []*End{&l.A, &l.B} {
		for round := range 8 {
			var frames [][]byte
			for i := range 16 {
				frames = append(frames, newFrame(uint32(16*round+i), 60+100*i%(l.caps.MaxFrame-60)))
			}
			if sum := l.sendAll(t, e, frames...); sum.Frames != 16 {
				t.Fatalf("sent %+v, want 16 frames", sum)
			}
			for i := range 16 {
				_, f := l.expect(t, e)
				if err := check(f, uint32(16*round+i), len(frames[i])); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, x := range []*End{&l.A, &l.B} {
			if b := l.receive(t, x); len(b) != 0 {
				t.Fatalf("%d frames were read back, first % x", len(b), x.Rx.Bytes(&b[0])[:20])
			}
		}
	}
}

// testOversize: a frame too long for the far interface is a counted drop, and
// its neighbours cross.
func testOversize(t *testing.T, l *lab) {
	largest := l.caps.MaxFrame
	small, fits := newFrame(1, 60), newFrame(2, largest)
	for _, long := range []int{largest + tagLen + 1, largest + 100, 20000, 60000} {
		if long <= largest {
			continue
		}
		big := newFrame(3, long)
		sum := l.sendAll(t, &l.B, small, big, fits, big, big, small)
		if sum.Frames != 3 || sum.Drops[port.TxMTU] != 3 || sum.Drops.Total() != 3 {
			t.Fatalf("%d bytes: %d left, drops %v; want 3 and 3 tx_mtu", long, sum.Frames, sum.Drops)
		}
		for i, want := range [][]byte{small, fits, small} {
			if _, f := l.expect(t, &l.B); !bytes.Equal(f, want) {
				t.Fatalf("%d bytes: neighbour %d: %v", long, i, differ(f, want))
			}
		}
	}
	l.expectNone(t, &l.B)
}
