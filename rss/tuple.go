package rss

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Tuple is a flow without a frame. It has the hash of a whole, unfragmented
// packet with these addresses, ports and protocol.
type Tuple struct {
	Proto    uint8          // IP protocol number
	Src, Dst netip.AddrPort // port 0, where the protocol has none
}

// protoNames are the protocols that a tuple may name; any other by number.
var protoNames = [...]struct {
	name  string
	proto uint8
}{
	{"tcp", protoTCP}, {"udp", protoUDP}, {"udplite", protoUDPLite}, {"dccp", protoDCCP}, {"sctp", protoSCTP},
	{"icmp", protoICMP}, {"icmpv6", protoICMP6}, {"igmp", protoIGMP}, {"gre", protoGRE}, {"esp", protoESP}, {"ah", protoAH},
}

// ParseTuple reads a tuple as people write it, "PROTO SRC DST" or
// "SRC,DST,PROTO", with spaces or commas between:
//
//	tcp 10.0.0.1:5000 10.0.0.2:80
//	[2001:db8::1]:53,[2001:db8::2]:999,udp
//	icmp 10.0.0.1 10.0.0.2
func ParseTuple(s string) (Tuple, error) {
	t, err := parseTuple(strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }))
	if err != nil {
		return Tuple{}, fmt.Errorf("tuple %q: %w", s, err)
	}
	return t, nil
}

func parseTuple(words []string) (t Tuple, err error) {
	if len(words) != 3 {
		return t, fmt.Errorf("it has %d words, not 3 (write PROTO SRC[:PORT] DST[:PORT])", len(words))
	}
	var ok bool
	if t.Proto, ok = parseProto(words[0]); ok {
		words = words[1:]
	} else if t.Proto, ok = parseProto(words[2]); !ok {
		return t, fmt.Errorf("no protocol (begin with tcp, udp, sctp, icmp … or a number)")
	}
	if t.Src, err = t.parseEndpoint(words[0]); err != nil {
		return t, err
	}
	if t.Dst, err = t.parseEndpoint(words[1]); err != nil {
		return t, err
	}
	return t, t.check()
}

func parseProto(s string) (uint8, bool) {
	for _, p := range protoNames {
		if s == p.name {
			return p.proto, true
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil
}

func (t Tuple) parseEndpoint(s string) (netip.AddrPort, error) {
	if t.hasPorts() {
		e, err := netip.ParseAddrPort(s)
		if err != nil {
			return e, fmt.Errorf("endpoint %q: not an address with a port (write 10.0.0.1:80 or [2001:db8::1]:80)", s)
		}
		return e, nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("endpoint %q: not an address, or with a port that protocol %d doesn't have", s, t.Proto)
	}
	return netip.AddrPortFrom(addr, 0), nil
}

func (t Tuple) hasPorts() bool {
	fl := flow{typ: IP4, proto: t.Proto, end: 4}
	fl.parsePorts()
	return fl.typ.hasPorts()
}

func (t Tuple) check() error {
	src, dst := t.Src.Addr(), t.Dst.Addr()
	switch {
	case !src.IsValid() || !dst.IsValid():
		return fmt.Errorf("an address is missing")
	case src.Is4() != dst.Is4():
		return fmt.Errorf("one address is IPv4, the other is IPv6")
	case src.Zone() != "" || dst.Zone() != "":
		return fmt.Errorf("an address has a zone (leave it out: frames have none)")
	}
	return nil
}

// String returns the tuple as ParseTuple reads it.
func (t Tuple) String() string {
	name := strconv.Itoa(int(t.Proto))
	for _, p := range protoNames {
		if t.Proto == p.proto {
			name = p.name
		}
	}
	if t.hasPorts() {
		return fmt.Sprintf("%s %s %s", name, t.Src, t.Dst)
	}
	return fmt.Sprintf("%s %s %s", name, t.Src.Addr(), t.Dst.Addr())
}

// HashTuple returns the RSS hash of a tuple.
func (h *Hasher) HashTuple(t Tuple) (uint32, error) {
	e, err := h.ExplainTuple(t)
	return e.Hash, err
}

// ExplainTuple returns how a tuple is hashed.
func (h *Hasher) ExplainTuple(t Tuple) (Explanation, error) {
	if err := t.check(); err != nil {
		return Explanation{}, fmt.Errorf("hash tuple %s: %w", t, err)
	}
	fl := flow{typ: IP4, proto: t.Proto}
	if t.Src.Addr().Is6() {
		fl.typ = IP6
	}
	f := append(t.Src.Addr().AsSlice(), t.Dst.Addr().AsSlice()...)
	fl.l4, fl.end = len(f), len(f)+4
	f = binary.BigEndian.AppendUint16(f, t.Src.Port())
	f = binary.BigEndian.AppendUint16(f, t.Dst.Port())
	fl.parsePorts()
	return h.explain(f, &fl), nil
}
