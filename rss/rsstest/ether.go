package rsstest

const (
	etherIP4 = 0x0800
	etherIP6 = 0x86dd
	etherTEB = 0x6558
)

// ether appends an Ethernet frame: the outer one at depth 0.
func (g *Gen) ether(depth int) {
	g.ends = append(g.ends, span{len(g.b), len(g.b) + 6, 6})
	g.mac()
	g.mac()
	for range g.tags() {
		g.put16(pick(g, 0x8100, 0x8100, 0x88a8, 0x9100))
		g.put16(int(g.r.Uint32()))
	}
	switch n := g.r.IntN(20); {
	case n < 9:
		g.put16(etherIP4)
		g.ip4(depth)
	case n < 17:
		g.put16(etherIP6)
		g.ip6(depth)
	default:
		g.other()
	}
}

// mac appends one of a few addresses, so that they meet in both orders and equal, or any.
func (g *Gen) mac() {
	switch g.r.IntN(4) {
	case 0:
		g.random(6)
	case 1:
		g.put(0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	default:
		g.put(2, 0, 0, 0, byte(g.r.IntN(4)), pick[byte](g, 0x0a, 0x0b))
	}
}

// tags returns how many VLAN tags the frame has: mostly none, seldom more than a parser skips.
func (g *Gen) tags() int {
	switch g.r.IntN(8) {
	case 0, 1:
		return 1
	case 2:
		return pick(g, 2, 2, 2, 3, 7, 8, 9, 10)
	}
	return 0
}

// other appends an ethertype that isn't IP, and what may follow it.
func (g *Gen) other() {
	switch g.r.IntN(6) {
	case 0: // ARP
		g.put16(0x0806)
		g.put(0, 1, 8, 0, 6, 4, 0, 1)
		g.random(20)
	case 1: // a length, IEEE 802.3
		n := g.r.IntN(60)
		g.put16(n)
		g.random(n)
	case 2: // MPLS, with IPv4 inside
		g.put16(0x8847)
		g.random(4)
		g.ip4(maxDepth)
	case 3: // PPPoE session, with IPv6 inside
		g.put16(0x8864)
		g.random(6)
		g.put16(0x0057)
		g.ip6(maxDepth)
	case 4: // the border between length and type
		g.put16(pick(g, 0, 1, 0x5dc, 0x5ff, 0x600, 0x601))
		g.random(g.r.IntN(60))
	default:
		g.random(2 + g.r.IntN(80))
	}
}

// pad appends what a network card would to reach 60 bytes, or any trailer.
func (g *Gen) pad() {
	if len(g.b) < 60 && g.oneIn(2) {
		g.random(60 - len(g.b))
	}
	if g.oneIn(8) {
		g.random(g.r.IntN(24))
	}
}
