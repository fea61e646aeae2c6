package rsstest

func (g *Gen) ip4Inside(depth int) {
	g.enter(depth)
	g.ip4(depth + 1)
}

func (g *Gen) ip6Inside(depth int) {
	g.enter(depth)
	g.ip6(depth + 1)
}

func (g *Gen) enter(depth int) { g.tunnels = max(g.tunnels, depth+1) }

// typed appends a packet or a frame, after its type at typeAt.
func (g *Gen) typed(typeAt, depth int) {
	g.enter(depth)
	switch g.r.IntN(8) {
	case 0, 1, 2:
		g.set16(typeAt, etherIP4)
		g.ip4(depth + 1)
	case 3, 4:
		g.set16(typeAt, etherIP6)
		g.ip6(depth + 1)
	case 5, 6:
		g.set16(typeAt, etherTEB)
		g.ether(depth + 1)
	default:
		g.set16(typeAt, 0x880b) // PPP: nothing a parser looks into
		g.data()
	}
}

// gre appends GRE (RFC 2784, RFC 2890), seldom of version 1.
func (g *Gen) gre(depth int) {
	at := len(g.b)
	flags := pick(g, 0, 0, 0x2000, 0x3000, 0x1000, 0x8000, 0xb000)
	if g.oneIn(16) {
		flags |= 1
	}
	g.put16(flags)
	g.put16(0)
	for _, bit := range [...]int{0x8000, 0x2000, 0x1000} {
		if flags&bit != 0 {
			g.random(4)
		}
	}
	g.typed(at+2, depth)
}

// outerUDP appends the UDP header of a tunnel; its source port is the sender's.
func (g *Gen) outerUDP(port int) (at int) {
	at = len(g.b)
	g.random(2)
	g.put16(port)
	g.put(0, 0, 0, 0)
	return at
}

func (g *Gen) vxlan(depth int) {
	g.enter(depth)
	at := g.outerUDP(pick(g, 4789, 8472))
	g.put(pick[byte](g, 0x08, 0x08, 0x08, 0x88, 0), 0, 0, 0)
	g.random(3)
	g.put(0)
	g.ether(depth + 1)
	g.set16(at+4, len(g.b)-at)
}

func (g *Gen) geneve(depth int) {
	at := g.outerUDP(6081)
	options := pick(g, 0, 0, 1, 2)
	if g.oneIn(32) {
		options = 31
	}
	g.put(byte(options*2), 0, 0, 0)
	g.random(3)
	g.put(0)
	for range options { // each is eight bytes: class, type, length 1, one word
		g.random(3)
		g.put(1)
		g.random(4)
	}
	g.typed(at+10, depth)
	g.set16(at+4, len(g.b)-at)
}

// gtpu appends GTP-U (3GPP TS 29.281): a T-PDU, or an echo request.
func (g *Gen) gtpu(depth int) {
	at := g.outerUDP(2152)
	head := len(g.b)
	flags := pick[byte](g, 0x30, 0x30, 0x32, 0x34, 0x36, 0x31)
	kind := pick[byte](g, 0xff, 0xff, 0xff, 0xff, 1)
	g.put(flags, kind, 0, 0)
	g.random(4)
	if flags&7 != 0 {
		g.random(3)
		g.gtpExtensions(flags&4 != 0)
	}
	g.enter(depth)
	if g.oneIn(2) {
		g.ip4(depth + 1)
	} else {
		g.ip6(depth + 1)
	}
	g.set16(head+2, len(g.b)-head-8)
	g.set16(at+4, len(g.b)-at)
}

// gtpExtensions appends the type of the first extension header and the headers,
// each of which ends in the type of the next one.
func (g *Gen) gtpExtensions(on bool) {
	if !on {
		g.put(g.byte()) // says nothing without the flag
		return
	}
	n := pick(g, 1, 1, 1, 2, 4, 5)
	for i := range n {
		g.put(0x85) // PDU session container
		words := 1 + g.r.IntN(2)
		g.put(byte(words))
		g.random(words*4 - 2)
		if i == n-1 {
			g.put(0)
		}
	}
}
