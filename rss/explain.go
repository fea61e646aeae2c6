package rss

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
)

// Explanation says how a hash came about.
type Explanation struct {
	Type        string `json:"type"`                  // flow type
	Inner       bool   `json:"inner,omitempty"`       // of the flow inside a tunnel
	Source      string `json:"source,omitempty"`      // endpoints as the frame has them: address and port, or MAC address
	Destination string `json:"destination,omitempty"` //
	Why         string `json:"why,omitempty"`         // why the flow key isn't wider
	Fields      string `json:"fields,omitempty"`      // letters of what is hashed; none for mac and raw
	Swapped     bool   `json:"swapped,omitempty"`     // symmetric: the destination was put first
	Func        string `json:"func"`                  // hash function
	Bytes       string `json:"bytes"`                 // what is hashed, in hexadecimal
	Hash        uint32 `json:"hash"`
}

// Explain returns how Hash hashes the frame.
func (h *Hasher) Explain(frame []byte) Explanation {
	var fl flow
	fl.parse(frame, h.inner)
	return h.explain(frame, &fl)
}

func (h *Hasher) explain(f []byte, fl *flow) Explanation {
	var k, unordered FlowKey
	k.fill(f, fl, h.fields[fl.typ], h.symmetric)
	unordered.fill(f, fl, h.fields[fl.typ], false)
	e := Explanation{
		Type: fl.typ.String(), Inner: fl.inner, Why: noteTexts[fl.note],
		Fields: h.fields[fl.typ].String(), Swapped: k != unordered,
		Func: h.fn.String(), Bytes: hex.EncodeToString(k.Bytes()), Hash: h.Sum(&k),
	}
	e.Source, e.Destination = fl.endpoints(f)
	return e
}

// endpoints prints who talks to whom.
func (fl *flow) endpoints(f []byte) (src, dst string) {
	switch {
	case fl.typ == Raw:
		return "", ""
	case fl.typ == MAC:
		return net.HardwareAddr(f[fl.l2+6 : fl.l2+12]).String(), net.HardwareAddr(f[fl.l2 : fl.l2+6]).String()
	case fl.typ.isIP6():
		return fl.endpoint(f, fl.addr, 16, 0), fl.endpoint(f, fl.addr+16, 16, 2)
	}
	return fl.endpoint(f, fl.addr, 4, 0), fl.endpoint(f, fl.addr+4, 4, 2)
}

func (fl *flow) endpoint(f []byte, off, size, port int) string {
	addr, _ := netip.AddrFromSlice(f[off : off+size])
	if !fl.typ.hasPorts() {
		return addr.String()
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(f[fl.l4+port:])).String()
}
