package rsstest

// maxDepth is how deep tunnels nest.
const maxDepth = 2

// ip4 appends an IPv4 packet.
func (g *Gen) ip4(depth int) {
	at := len(g.b)
	g.heads = append(g.heads, at)
	p := g.payload(depth, false)
	options := 0
	if g.oneIn(4) {
		options = 1 + g.r.IntN(10)
	}
	g.put(byte(0x45+options), g.byte(), 0, 0)
	g.put16(int(g.r.Uint32()))
	g.put16(g.fragment4())
	g.put(64, p.proto, 0, 0)
	g.addresses(4)
	g.random(options * 4)
	body := len(g.b)
	p.write(g, depth)
	if !g.unstated(body) {
		g.set16(at+2, len(g.b)-at)
	}
}

// fragment4 returns flags and fragment offset: seldom those of a fragment.
func (g *Gen) fragment4() int {
	switch g.r.IntN(16) {
	case 0:
		return 0x2000 // first
	case 1:
		return 0x2000 | 1 + g.r.IntN(0x1fff)
	case 2:
		return 1 + g.r.IntN(0x1fff) // last
	case 3:
		return 0x8000 // reserved bit
	}
	return pick(g, 0, 0x4000)
}

// ip6 appends an IPv6 packet.
func (g *Gen) ip6(depth int) {
	at := len(g.b)
	g.heads = append(g.heads, at)
	p := g.payload(depth, true)
	var exts []byte
	if g.oneIn(3) {
		exts = g.extensions()
	}
	g.put(0x60|byte(g.r.IntN(16)), g.byte(), g.byte(), g.byte(), 0, 0)
	next := append(exts, p.proto)
	g.put(next[0], 64)
	g.addresses(16)
	for i, e := range exts {
		g.extension(e, next[i+1])
	}
	body := len(g.b)
	p.write(g, depth)
	if next[0] != extHop || !g.unstated(body) { // a jumbogram has it in an option
		g.set16(at+4, len(g.b)-at-40)
	}
}

// unstated says whether the IP header leaves its length 0, as that of a packet too long for it. Never
// if the ports could lie in the padding then.
func (g *Gen) unstated(body int) bool { return len(g.b)-body >= 4 && g.oneIn(16) }

const (
	extHop     = 0
	extRouting = 43
	extFrag    = 44
	extAH      = 51
	extDest    = 60
)

// extensions returns the kinds of the extension headers: mostly few, seldom more than a parser skips.
func (g *Gen) extensions() []byte {
	n := pick(g, 1, 1, 1, 1, 2, 2, 3, 7, 8, 9, 10)
	kinds := make([]byte, 0, n+1)
	for range n {
		kinds = append(kinds, pick[byte](g, extHop, extRouting, extFrag, extAH, extDest))
	}
	return kinds
}

// extension appends one extension header.
func (g *Gen) extension(kind, next byte) {
	words := 0 // beyond the first eight bytes
	if g.oneIn(3) {
		words = 1 + g.r.IntN(4)
	}
	if g.oneIn(40) {
		words = 16 + g.r.IntN(20) // reaches behind what a parser looks at
	}
	g.put(next)
	switch kind {
	case extFrag:
		g.put(g.byte())
		g.put16(g.fragment6())
		g.random(4)
	case extAH: // counts four-byte words, less two
		g.put(byte(1 + words))
		g.random(4*(1+words) + 6)
	default:
		g.put(byte(words))
		g.random(words*8 + 6)
	}
}

// fragment6 returns offset, reserved bits and M: mostly those of an atomic fragment.
func (g *Gen) fragment6() int {
	switch g.r.IntN(6) {
	case 0:
		return 1
	case 1:
		return g.r.IntN(0x2000)<<3 | 1
	case 2:
		return (1 + g.r.IntN(0x1fff)) << 3
	}
	return pick(g, 0, 0, 2, 6) // reserved bits say nothing
}

// addresses appends source and destination: of a few hosts, or any.
func (g *Gen) addresses(n int) {
	g.ends = append(g.ends, span{len(g.b), len(g.b) + n, n})
	for range 2 {
		if g.oneIn(2) {
			g.random(n)
			continue
		}
		for range n - 2 {
			g.put(10)
		}
		g.put(0, byte(g.r.IntN(3)))
	}
}
