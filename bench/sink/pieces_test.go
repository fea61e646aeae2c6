package sink

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/netns"
)

// ring sends a frame by a TPACKET_V2 ring: only its Ethernet header is in one piece with the buffer's head.
func ring(t *testing.T, ns, ifindex int, frame []byte) {
	t.Helper()
	const slot, head = 16384, 32 // head: of what stands before a frame (linux/if_packet.h)
	fd := -1
	err := netns.Do(ns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	req := unix.TpacketReq{Block_size: slot, Block_nr: 1, Frame_size: slot, Frame_nr: 1}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2),
		unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_TX_RING, &req))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, slot, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	copy(mem[head:], frame)
	binary.NativeEndian.PutUint32(mem[4:], uint32(len(frame)))
	binary.NativeEndian.PutUint32(mem, unix.TP_STATUS_SEND_REQUEST)
	if err := unix.Send(fd, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// Frames whose bytes aren't in one piece count like any other.
func TestFramesInPieces(t *testing.T) {
	for _, mode := range []load.Mode{load.Frame, load.Skb} {
		tp, err := topo.Bare(1500)
		if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
			t.Skip(err, "(needs CAP_SYS_ADMIN and CAP_NET_ADMIN)")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer tp.Close()
		ns, ifindex := tp.Sink()
		s, err := New(Config{NetNS: ns, Ifindex: ifindex, Mode: mode, Flows: testFlows})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Reset(testRun); err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, headers: wire.Headers(testFlows, 1, wire.MAC{2}, wire.MAC{2})}
		ns, ifindex = tp.Load()
		for seq := range uint32(3) {
			ring(t, ns, ifindex, r.frame(wire.Stamp{Run: testRun, Flow: 2, Seq: seq}))
		}
		for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			n, err := s.Arrived()
			if err != nil {
				t.Fatal(err)
			}
			if n == 3 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("%s mode: %d of 3 frames came", mode, n)
			}
		}
	}
}
