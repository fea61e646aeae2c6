package rss

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// oracle finds flow type and key of a frame with gopacket's decoders; only the rules of the
// package comment are its own. All fields, not symmetric.
type oracle struct {
	typ   FlowType
	key   []byte
	whole bool  // not a fragment, nothing cut off or malformed
	proto uint8 // what an IP packet carries
	body  []byte
}

var feedback = gopacket.NilDecodeFeedback

// oracleFlow returns what the parser must find in a frame.
func oracleFlow(f []byte, inner bool) (FlowType, []byte) {
	o := oracleEther(f[:min(len(f), Window)])
	if inner && o.typ >= IP4 && o.whole {
		if in := o.inside(); in.typ >= IP4 || in.typ == MAC && in.whole {
			return in.typ, in.key
		}
	}
	return o.typ, o.key
}

func oracleEther(f []byte) oracle {
	var eth layers.Ethernet
	if eth.DecodeFromBytes(f, feedback) != nil {
		return oracle{typ: Raw, key: f}
	}
	etype, body := eth.EthernetType, f[14:] // eth.Payload is shorter for IEEE 802.3
	whole := true
	for n := 0; etype == layers.EthernetTypeDot1Q || etype == layers.EthernetTypeQinQ || etype == 0x9100; n++ {
		var tag layers.Dot1Q
		if n == MaxTags || tag.DecodeFromBytes(body, feedback) != nil {
			whole = false
			break
		}
		etype, body = tag.Type, tag.Payload
	}
	if o := oracleNetwork(etype, body); o.typ >= IP4 {
		return o
	}
	isIP := etype == layers.EthernetTypeIPv4 || etype == layers.EthernetTypeIPv6
	if etype < 0x600 {
		etype = 0
	}
	key := binary.BigEndian.AppendUint16(slices.Concat(eth.DstMAC, eth.SrcMAC), uint16(etype))
	return oracle{typ: MAC, key: key, whole: whole && !isIP}
}

func oracleNetwork(etype layers.EthernetType, body []byte) oracle {
	switch etype {
	case layers.EthernetTypeIPv4:
		return oracleIP4(body)
	case layers.EthernetTypeIPv6:
		return oracleIP6(body)
	}
	return oracle{}
}

func oracleIP4(b []byte) oracle {
	var ip layers.IPv4
	err := ip.DecodeFromBytes(b, feedback)
	head, stated := int(ip.IHL)*4, 0
	if len(b) >= 20 {
		stated = int(binary.BigEndian.Uint16(b[2:])) // gopacket overwrites 0
	}
	if len(b) < 20 || ip.Version != 4 || head < 20 || stated != 0 && stated < head {
		return oracle{}
	}
	o := oracle{typ: IP4, key: slices.Concat(ip.SrcIP, ip.DstIP), whole: true, proto: uint8(ip.Protocol)}
	if ip.FragOffset != 0 || ip.Flags&layers.IPv4MoreFragments != 0 {
		o.whole = false
		return o
	}
	if o.body = ip.Payload; err != nil { // gopacket wants valid options
		o.body = b[min(head, len(b)):min(len(b), max(int(ip.Length), head))]
	}
	return o.ports()
}

func oracleIP6(b []byte) oracle {
	var ip layers.IPv6
	_ = ip.DecodeFromBytes(b, feedback) // an error about options or length comes after the header
	if len(b) < 40 || ip.Version != 6 {
		return oracle{}
	}
	o := oracle{typ: IP6, key: slices.Concat(ip.SrcIP, ip.DstIP), whole: true, body: b[40:]}
	if ip.Length != 0 || ip.NextHeader != layers.IPProtocolIPv6HopByHop {
		o.body = o.body[:min(len(o.body), int(ip.Length))]
	}
	next := ip.NextHeader
	for n := 0; isExt(uint8(next)) && o.whole; n++ {
		if o.whole = n < MaxExts; o.whole {
			next, o.body, o.whole = oracleExt(next, o.body)
		}
	}
	o.proto = uint8(next)
	if !o.whole {
		return o
	}
	return o.ports()
}

// oracleExt returns what follows an extension header; ok is false for a fragment or one cut off.
func oracleExt(kind layers.IPProtocol, b []byte) (next layers.IPProtocol, rest []byte, ok bool) {
	if kind == layers.IPProtocolAH && len(b) >= 8 && b[1] == 0 { // no sequence number: gopacket doesn't take it
		return layers.IPProtocol(b[0]), b[8:], true
	}
	p := gopacket.NewPacket(b, kind, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	switch kind {
	case layers.IPProtocolAH:
		if ah, is := p.Layer(layers.LayerTypeIPSecAH).(*layers.IPSecAH); is {
			return ah.NextHeader, ah.Payload, true
		}
		return 0, nil, false
	case layers.IPProtocolIPv6Fragment:
		if f, is := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment); is {
			return f.NextHeader, f.Payload, f.FragmentOffset == 0 && !f.MoreFragments
		}
		return 0, nil, false
	}
	var skip layers.IPv6ExtensionSkipper
	err := skip.DecodeFromBytes(b, feedback)
	return skip.NextHeader, skip.Payload, err == nil
}

// ports adds the ports that gopacket finds; of a header cut off behind them they are the first four bytes.
func (o oracle) ports() oracle {
	var src, dst uint16
	var err error
	switch layers.IPProtocol(o.proto) {
	case layers.IPProtocolTCP:
		var l layers.TCP
		err = l.DecodeFromBytes(o.body, feedback)
		src, dst, o.typ = uint16(l.SrcPort), uint16(l.DstPort), o.typ+TCP4-IP4
	case layers.IPProtocolUDP:
		var l layers.UDP
		err = l.DecodeFromBytes(o.body, feedback)
		src, dst, o.typ = uint16(l.SrcPort), uint16(l.DstPort), o.typ+UDP4-IP4
	case layers.IPProtocolSCTP:
		var l layers.SCTP
		err = l.DecodeFromBytes(o.body, feedback)
		src, dst, o.typ = uint16(l.SrcPort), uint16(l.DstPort), o.typ+SCTP4-IP4
	case layers.IPProtocolUDPLite, 33: // gopacket reads UDP-Lite without bounds, and has no DCCP
		err, o.typ = gopacket.UnsupportedLayerType(layers.LayerTypeUDPLite), o.typ+UDP4-IP4
	default:
		return o
	}
	if len(o.body) < 4 {
		o.typ, o.whole = IP4+o.typ&1, false
		return o
	}
	if err != nil {
		src, dst = binary.BigEndian.Uint16(o.body), binary.BigEndian.Uint16(o.body[2:])
	}
	o.key = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(bytes.Clone(o.key), src), dst)
	return o
}
