package porttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port"
)

// tagLen is the size of a VLAN tag, and macLen of the two addresses in front of it.
const (
	tagLen = 4
	macLen = 12
)

// statusVLAN is TP_STATUS_VLAN_VALID: the auxiliary data has a tag.
const statusVLAN = 0x10

// farBuffer is the receive buffer of a Far: it must hold all that a case lets
// come out before it looks.
const farBuffer = 64 << 20

// PacketFar is a Far on a network interface: a plain packet socket, with one
// system call per frame.
type PacketFar struct {
	fd  int
	to  unix.SockaddrLinklayer
	out []byte
	in  []byte
	oob []byte
}

// DialFar opens a Far on interface ifname of namespace ns.
func DialFar(ns *NS, ifname string) (*PacketFar, error) {
	var p *PacketFar
	err := ns.Do(func() error {
		ifindex, err := ifindex(ifname)
		if err != nil {
			return err
		}
		p, err = dialFar(ifindex)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open far side on %s: %w", ifname, err)
	}
	return p, nil
}

func dialFar(ifindex int) (*PacketFar, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	p := &PacketFar{
		fd:  fd,
		to:  unix.SockaddrLinklayer{Ifindex: ifindex},
		out: make([]byte, port.VNetHdrLen+port.MaxFrameLen),
		in:  make([]byte, tagLen+port.VNetHdrLen+port.MaxFrameLen),
		oob: make([]byte, 256),
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, farBuffer},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1 << 20},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return nil, errors.Join(fmt.Errorf("set option %d: %w", o.name, err), unix.Close(fd))
		}
	}
	all := unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: ifindex} // ETH_P_ALL in network order
	if err := unix.Bind(fd, &all); err != nil {
		return nil, errors.Join(fmt.Errorf("bind: %w", err), unix.Close(fd))
	}
	return p, nil
}

// Send sends a frame. It doesn't allocate.
func (p *PacketFar) Send(h *Hdr, frame []byte) error {
	clear(p.out[:port.VNetHdrLen])
	if h != nil {
		copy(p.out, h[:])
	}
	n := port.VNetHdrLen + copy(p.out[port.VNetHdrLen:], frame)
	err := unix.Sendto(p.fd, p.out[:n], unix.MSG_DONTWAIT, &p.to)
	if err == unix.ENETDOWN { // may be what the socket remembers of an earlier time: it is told once
		err = unix.Sendto(p.fd, p.out[:n], unix.MSG_DONTWAIT, &p.to)
	}
	if err == unix.EAGAIN { // frames sent earlier have not been received yet
		return unix.ENOBUFS
	}
	return err
}

// Recv waits for a frame.
func (p *PacketFar) Recv(wait time.Duration) (h Hdr, frame []byte, err error) {
	for end := time.Now().Add(wait); ; {
		n, oobn, _, _, err := unix.Recvmsg(p.fd, p.in[tagLen:], p.oob, unix.MSG_DONTWAIT)
		if err == nil {
			m := untrim(p.in, tagLen+n, p.oob[:oobn])
			return Hdr(m), m[port.VNetHdrLen:], nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.EINTR) {
			return h, nil, err
		}
		left := time.Until(end)
		if left <= 0 {
			return h, nil, nil
		}
		ts := unix.NsecToTimespec(int64(left))
		if _, err := unix.Ppoll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return h, nil, err
		}
	}
}

// untrim puts the VLAN tag that the kernel took out back into the frame, which is
// at mem[tagLen:n]. It returns the virtio_net_hdr and the frame.
func untrim(mem []byte, n int, oob []byte) []byte {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return mem[tagLen:n]
	}
	for _, m := range msgs {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 {
			continue
		}
		// struct tpacket_auxdata: status, len, snaplen (32 bits each), mac, net, tci, tpid (16 bits each)
		if binary.NativeEndian.Uint32(m.Data)&statusVLAN == 0 {
			break
		}
		head := port.VNetHdrLen + macLen
		copy(mem, mem[tagLen:tagLen+head])
		binary.BigEndian.PutUint16(mem[head:], binary.NativeEndian.Uint16(m.Data[18:]))
		binary.BigEndian.PutUint16(mem[head+2:], binary.NativeEndian.Uint16(m.Data[16:]))
		shift(mem)
		return mem[:n]
	}
	return mem[tagLen:n]
}

// shift corrects a virtio_net_hdr for a tag that was put in front of what it points at.
func shift(h []byte) {
	if h[0]&NeedsCsum != 0 {
		binary.LittleEndian.PutUint16(h[6:], binary.LittleEndian.Uint16(h[6:])+tagLen)
	}
	if h[1] != GSONone {
		binary.LittleEndian.PutUint16(h[2:], binary.LittleEndian.Uint16(h[2:])+tagLen)
	}
}

// Close frees the socket.
func (p *PacketFar) Close() error { return unix.Close(p.fd) }
