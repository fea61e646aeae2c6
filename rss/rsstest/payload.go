package rsstest

// payload is what an IP packet carries.
type payload struct {
	proto byte
	write func(g *Gen, depth int)
}

// payload picks one that suits an IPv4 or IPv6 packet. Tunnels nest up to maxDepth.
func (g *Gen) payload(depth int, ip6 bool) payload {
	if depth < maxDepth && g.oneIn(3) {
		return g.tunnelPayload()
	}
	p := g.transport()
	if ip6 && isExtension(p.proto) {
		p.proto = 59 // what follows isn't such a header
	}
	return p
}

func isExtension(proto byte) bool {
	return proto == extHop || proto == extRouting || proto == extFrag || proto == extAH || proto == extDest
}

func (g *Gen) transport() payload {
	switch g.r.IntN(16) {
	case 0, 1, 2, 3:
		return payload{6, (*Gen).tcp}
	case 4, 5, 6, 7:
		return payload{pick[byte](g, 17, 17, 17, 136), (*Gen).udp}
	case 8:
		return payload{132, (*Gen).sctp}
	case 9:
		return payload{33, (*Gen).dccp}
	case 10:
		return payload{pick[byte](g, 6, 17, 132), (*Gen).short}
	case 11:
		return payload{61 + byte(g.r.IntN(60)), (*Gen).opaque}
	}
	return payload{pick[byte](g, 1, 58, 50, 51), (*Gen).opaque}
}

func (g *Gen) tunnelPayload() payload {
	switch g.r.IntN(6) {
	case 0:
		return payload{4, (*Gen).ip4Inside}
	case 1:
		return payload{41, (*Gen).ip6Inside}
	case 2:
		return payload{47, (*Gen).gre}
	case 3:
		return payload{17, (*Gen).vxlan}
	case 4:
		return payload{17, (*Gen).geneve}
	}
	return payload{17, (*Gen).gtpu}
}

// ports appends two ports of a flow: of a few, or any.
func (g *Gen) ports() {
	g.ends = append(g.ends, span{len(g.b), len(g.b) + 2, 2})
	for range 2 {
		if g.oneIn(2) {
			g.random(2)
			continue
		}
		g.put16(pick(g, 53, 80, 443, 5001, 0, 65535))
	}
}

func (g *Gen) data() { g.random(g.r.IntN(64)) }

func (g *Gen) tcp(int) {
	g.ports()
	g.random(8)
	g.put(0x50, 0x10)
	g.random(6)
	g.data()
}

func (g *Gen) udp(int) {
	at := len(g.b)
	g.ports()
	g.put(0, 0, 0, 0)
	g.data()
	g.set16(at+4, len(g.b)-at)
}

func (g *Gen) sctp(int) {
	g.ports()
	g.random(8)
	g.data()
}

func (g *Gen) dccp(int) {
	g.ports()
	g.put(3, 0)
	g.random(6)
	g.data()
}

// opaque appends what a parser doesn't look into.
func (g *Gen) opaque(int) { g.data() }

// short appends fewer bytes than the ports take.
func (g *Gen) short(int) { g.random(g.r.IntN(4)) }
