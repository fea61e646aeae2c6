package rss

import (
	"github.com/google/gopacket/layers"
)

// inside returns what is in the tunnel that o is, type Raw for nothing usable.
func (o oracle) inside() oracle {
	switch layers.IPProtocol(o.proto) {
	case layers.IPProtocolIPv4:
		return oracleIP4(o.body)
	case layers.IPProtocolIPv6:
		return oracleIP6(o.body)
	case layers.IPProtocolGRE:
		return o.insideGRE()
	case layers.IPProtocolUDP:
		return o.insideUDP()
	}
	return oracle{}
}

func oracleTyped(etype layers.EthernetType, body []byte) oracle {
	if etype == layers.EthernetTypeTransparentEthernetBridging {
		return oracleEther(body)
	}
	return oracleNetwork(etype, body)
}

// insideGRE guards gopacket's decoder, which reads without bounds and follows the
// obsolete acknowledgement bit.
func (o oracle) insideGRE() oracle {
	var gre layers.GRE
	b := make([]byte, len(o.body)+64)
	if copy(b, o.body); len(o.body) < 4 || b[0]&0x40 != 0 {
		return oracle{}
	}
	b[1] &^= 0x80
	if gre.DecodeFromBytes(b, feedback) != nil || gre.Version != 0 || len(gre.Contents) > len(o.body) {
		return oracle{}
	}
	return oracleTyped(gre.Protocol, o.body[len(gre.Contents):])
}

func (o oracle) insideUDP() oracle {
	if len(o.body) < 16 {
		return oracle{}
	}
	port, b := int(o.body[2])<<8|int(o.body[3]), o.body[8:]
	switch port {
	case 4789, 8472:
		var vx layers.VXLAN
		if vx.DecodeFromBytes(b, feedback) == nil && vx.ValidIDFlag {
			return oracleEther(vx.Payload)
		}
	case 6081:
		var gn layers.Geneve // its decoder wants valid options: give it none
		head := append([]byte{b[0] & 0xc0}, b[1:8]...)
		if gn.DecodeFromBytes(head, feedback) == nil && b[0]>>6 == 0 {
			return oracleTyped(gn.Protocol, b[min(len(b), 8+int(b[0]&0x3f)*4):])
		}
	case 2152:
		return oracleGTP(b)
	}
	return oracle{}
}

// oracleGTP walks GTP-U by the letter of 3GPP TS 29.281, as gopacket's decoder prints and panics
// when it meets what is cut off.
func oracleGTP(b []byte) oracle {
	version, pt, kind := b[0]>>5, b[0]>>4&1, b[1]
	if version != 1 || pt != 1 || kind != 255 {
		return oracle{}
	}
	ext, rest := byte(0), b[8:]
	if b[0]&7 != 0 {
		if len(rest) < 4 {
			return oracle{}
		}
		if b[0]&4 != 0 {
			ext = rest[3]
		}
		rest = rest[4:]
	}
	for n := 0; ext != 0; n++ {
		if len(rest) == 0 || rest[0] == 0 || int(rest[0])*4 > len(rest) || n == maxGTPExts {
			return oracle{}
		}
		ext, rest = rest[int(rest[0])*4-1], rest[int(rest[0])*4:]
	}
	if len(rest) > 0 && rest[0]>>4 == 4 {
		return oracleIP4(rest)
	}
	if len(rest) > 0 && rest[0]>>4 == 6 {
		return oracleIP6(rest)
	}
	return oracle{}
}
