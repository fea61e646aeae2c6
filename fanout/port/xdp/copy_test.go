package xdp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/epair-net/epair/fanout/port"
	"github.com/epair-net/epair/fanout/port/porttest"
)

// datagram returns a frame that gopacket has checksummed and where its transport header is.
func datagram(t testing.TB, tcp bool, payload int) (frame []byte, start, field int) {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}, Protocol: layers.IPProtocolUDP}
	data := make([]byte, payload)
	for i := range data {
		data[i] = byte(i*7 + payload)
	}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	seg := &layers.TCP{SrcPort: 1000, DstPort: 2000, ACK: true, Window: 1000, DataOffset: 5}
	var transport gopacket.SerializableLayer = udp
	field = 6
	if tcp {
		ip.Protocol, transport, field = layers.IPProtocolTCP, seg, 16
	}
	for _, err := range []error{udp.SetNetworkLayerForChecksum(ip), seg.SetNetworkLayerForChecksum(ip)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, transport, gopacket.Payload(data)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), ethHdrLen + 20, field
}

// unfinished returns the frame with only the pseudo header's sum in its checksum, as a socket leaves it.
func unfinished(frame []byte, start, field int) []byte {
	f := bytes.Clone(frame)
	ip := f[ethHdrLen:]
	pseudo := append(bytes.Clone(ip[12:20]), 0, ip[9], 0, 0)
	binary.BigEndian.PutUint16(pseudo[10:], binary.BigEndian.Uint16(ip[2:])-20) // without padding
	binary.BigEndian.PutUint16(f[start+field:], fold(pseudo))
	return f
}

func TestFinish(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		for payload := range 300 {
			want, start, field := datagram(t, tcp, payload)
			if binary.BigEndian.Uint16(want[start+field:]) == 0 {
				binary.BigEndian.PutUint16(want[start+field:], 0xffff) // the same number; the kernel's choice (skb_checksum_help)
			}
			f := unfinished(want, start, field)
			hdr := porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, uint16(start), uint16(field))
			if !finish(f, hdr[:]) || !bytes.Equal(f, want) {
				t.Fatalf("tcp %t, %d bytes: checksum % x, want % x", tcp, payload, f[start+field:][:2], want[start+field:][:2])
			}
		}
	}
}

// TestFinishZero: a sum of 0 is written as 0xffff, as 0 means that a UDP header has none.
func TestFinishZero(t *testing.T) {
	f := make([]byte, 60)
	f[50], f[51] = 0xff, 0xff
	hdr := porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, 34, 6)
	if !finish(f, hdr[:]) || f[40] != 0xff || f[41] != 0xff {
		t.Errorf("checksum % x", f[40:42])
	}
}

func FuzzFinish(f *testing.F) {
	f.Add(make([]byte, 60), []byte{1, 0, 0, 0, 0, 0, 34, 0, 6, 0})
	f.Fuzz(func(t *testing.T, frame, hdr []byte) {
		if len(hdr) < port.VNetHdrLen {
			return
		}
		start := int(binary.NativeEndian.Uint16(hdr[6:]))
		at := start + int(binary.NativeEndian.Uint16(hdr[8:]))
		before := bytes.Clone(frame)
		if ok := finish(frame, hdr); ok != (at+2 <= len(frame)) {
			t.Fatalf("finish says %t of a field at %d in %d bytes", ok, at, len(frame))
		} else if !ok && !bytes.Equal(frame, before) {
			t.Fatal("finish changed a frame that it refused")
		}
	})
}

// TestForeignFrames: what another port received is copied, its checksum finished, and what
// can't be carried is dropped and counted.
func TestForeignFrames(t *testing.T) {
	w := newWorld(t, 1500, 1)
	p, err := Open(PairConfig{A: EndConfig{NetNS: w.outer.FD(), Ifindex: w.veth[0].OuterIndex}, Frames: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, tx := halves(t, p.A)
	far, err := porttest.DialFar(w.veth[0].InnerNS, w.veth[0].Inner)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()

	udp, start, field := datagram(t, false, 700)
	tcp, tcpStart, tcpField := datagram(t, true, 701)
	src := porttest.NewSource(unfinished(udp, start, field), tcp, unfinished(tcp, tcpStart, tcpField), tcp, udp, tcp)
	src.SetHdr(0, porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, uint16(start), uint16(field)))
	src.SetHdr(2, porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, uint16(tcpStart), uint16(tcpField)))
	src.SetHdr(3, porttest.NewHdr(porttest.NeedsCsum, porttest.GSOTCP4, 54, 300, uint16(tcpStart), uint16(tcpField)))
	src.SetHdr(4, porttest.NewHdr(porttest.NeedsCsum, porttest.GSONone, 0, 0, uint16(start), uint16(len(udp))))
	var sum port.Tally
	tx.Send(src, src.Frames(), &sum)
	if err := src.Check(); err != nil {
		t.Error(err)
	}
	if sum.Frames != 4 || sum.Drops[port.TxInvalid] != 2 || sum.Drops.Total() != 2 {
		t.Errorf("tally %+v, want 4 and 2 tx_invalid", sum)
	}
	for i, want := range [][]byte{udp, tcp, tcp, tcp} {
		if _, f, err := far.Recv(5 * time.Second); err != nil || !bytes.Equal(f, want) {
			t.Errorf("frame %d came as %d bytes % x…, error %v", i, len(f), f[:min(len(f), 60)], err)
		}
	}
}
