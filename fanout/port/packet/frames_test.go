package packet

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// frame returns a frame whose last bytes are its number.
func frame(n, size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	binary.BigEndian.PutUint32(f[size-4:], uint32(n))
	return f
}

func number(f []byte) int { return int(binary.BigEndian.Uint32(f[len(f)-4:])) }

// send sends all frames of src by x in batches, and checks that each was released once.
func send(t *testing.T, x *Tx, src *porttest.Source) port.Tally {
	t.Helper()
	var sum port.Tally
	b := src.Frames()
	total := uint64(len(b))
	for len(b) > 0 {
		n := min(len(b), port.MaxBatch)
		x.Send(src, b[:n], &sum)
		b = b[n:]
	}
	if err := src.Check(); err != nil {
		t.Error(err)
	}
	if sum.Frames+sum.Drops.Total() != total {
		t.Fatalf("%d frames became %+v", total, sum)
	}
	checkIdle(t, x.s)
	return sum
}

// checkIdle checks that nothing is staged in the ring.
func checkIdle(t *testing.T, s *Sender) {
	t.Helper()
	for i := range s.ring.mask + 1 {
		if st := s.ring.hdr(i).status.Load(); st != unix.TP_STATUS_AVAILABLE && st != unix.TP_STATUS_SENDING {
			t.Fatalf("slot %d of the idle ring has status %d", i, st)
		}
	}
}

// expect checks that just these frames came out.
func expect(t *testing.T, far *porttest.PacketFar, want []int) {
	t.Helper()
	for _, n := range want {
		_, f, err := far.Recv(10 * time.Second)
		if err != nil || f == nil || number(f) != n {
			t.Fatalf("frame %d: came % x, error %v", n, f, err)
		}
	}
	if _, f, err := far.Recv(time.Millisecond); f != nil || err != nil {
		t.Fatalf("came too: % x, error %v", f, err)
	}
}

func counting(from, to int) (n []int) {
	for i := from; i < to; i++ {
		n = append(n, i)
	}
	return n
}
