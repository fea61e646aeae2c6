package rss

import (
	"cmp"
	"encoding/binary"
)

// MaxKeyLen is the length of the longest flow key: two IPv6 addresses and two ports.
const MaxKeyLen = 36

// FlowKey is the canonical form of what is hashed, as the package comment lays
// it down. Bytes behind its length are 0.
type FlowKey struct {
	b [MaxKeyLen]byte
	n int
}

// Bytes returns the bytes that are hashed. borrowed: they are those of k.
func (k *FlowKey) Bytes() []byte { return k.b[:k.n] }

// fill writes the key of a flow that was found in f.
func (k *FlowKey) fill(f []byte, fl *flow, set Fields, symmetric bool) {
	switch {
	case fl.typ == Raw:
		k.n = copy(k.b[:], f)
	case fl.typ == MAC:
		k.fillMAC(f, fl, symmetric)
	case fl.typ.isIP6():
		k.fillIP6(f, fl, set, symmetric)
	default:
		k.fillIP4(f, fl, set, symmetric)
	}
}

func (k *FlowKey) fillMAC(f []byte, fl *flow, symmetric bool) {
	macs := f[fl.l2 : fl.l2+12]
	x := uint64(binary.BigEndian.Uint32(macs))<<16 | uint64(binary.BigEndian.Uint16(macs[4:]))
	y := uint64(binary.BigEndian.Uint16(macs[6:]))<<32 | uint64(binary.BigEndian.Uint32(macs[8:]))
	if symmetric {
		x, y = min(x, y), max(x, y)
	}
	etype := binary.BigEndian.Uint16(f[fl.l3-2:])
	if etype < minEtherType {
		etype = 0
	}
	binary.BigEndian.PutUint64(k.b[0:], x<<16|y>>32)
	binary.BigEndian.PutUint32(k.b[8:], uint32(y))
	binary.BigEndian.PutUint16(k.b[12:], etype)
	k.n = 14
}

// fillIP4 holds an endpoint as one number, address<<16 | port, with 0 for what
// isn't selected: numbers order as the byte strings do.
func (k *FlowKey) fillIP4(f []byte, fl *flow, set Fields, symmetric bool) {
	a := f[fl.addr : fl.addr+8]
	x := uint64(binary.BigEndian.Uint32(a)) << 16
	y := uint64(binary.BigEndian.Uint32(a[4:])) << 16
	if set&addrFields == 0 {
		x, y = 0, 0
	}
	if set&portFields != 0 {
		p := binary.BigEndian.Uint32(f[fl.l4:])
		x |= uint64(p >> 16)
		y |= uint64(p & 0xffff)
	}
	if symmetric {
		x, y = min(x, y), max(x, y)
	}
	if set&addrFields == addrFields {
		binary.BigEndian.PutUint64(k.b[0:], x>>16<<32|y>>16)
		k.n = 8
	} else {
		k.n = 0
		k.put4(set&Src != 0, uint32(x>>16))
		k.put4(set&Dst != 0, uint32(y>>16))
	}
	k.putPorts(set, uint16(x), uint16(y))
}

func (k *FlowKey) fillIP6(f []byte, fl *flow, set Fields, symmetric bool) {
	var x, y endpoint6
	if set&addrFields != 0 {
		a := f[fl.addr : fl.addr+32]
		x.hi, x.lo = binary.BigEndian.Uint64(a), binary.BigEndian.Uint64(a[8:])
		y.hi, y.lo = binary.BigEndian.Uint64(a[16:]), binary.BigEndian.Uint64(a[24:])
	}
	if set&portFields != 0 {
		p := binary.BigEndian.Uint32(f[fl.l4:])
		x.port, y.port = uint16(p>>16), uint16(p)
	}
	if symmetric && x.compare(y) > 0 {
		x, y = y, x
	}
	k.n = 0
	k.put16(set&Src != 0, x)
	k.put16(set&Dst != 0, y)
	k.putPorts(set, x.port, y.port)
}

type endpoint6 struct {
	hi, lo uint64
	port   uint16
}

func (e endpoint6) compare(o endpoint6) int {
	if c := cmp.Compare(e.hi, o.hi); c != 0 {
		return c
	}
	if c := cmp.Compare(e.lo, o.lo); c != 0 {
		return c
	}
	return cmp.Compare(e.port, o.port)
}

func (k *FlowKey) putPorts(set Fields, sport, dport uint16) {
	if set&portFields == portFields {
		binary.BigEndian.PutUint32(k.b[k.n:], uint32(sport)<<16|uint32(dport))
		k.n += 4
		return
	}
	k.put2(set&Sport != 0, sport)
	k.put2(set&Dport != 0, dport)
}

func (k *FlowKey) put2(on bool, v uint16) {
	if on {
		binary.BigEndian.PutUint16(k.b[k.n:], v)
		k.n += 2
	}
}

func (k *FlowKey) put4(on bool, v uint32) {
	if on {
		binary.BigEndian.PutUint32(k.b[k.n:], v)
		k.n += 4
	}
}

func (k *FlowKey) put16(on bool, e endpoint6) {
	if on {
		binary.BigEndian.PutUint64(k.b[k.n:], e.hi)
		binary.BigEndian.PutUint64(k.b[k.n+8:], e.lo)
		k.n += 16
	}
}
