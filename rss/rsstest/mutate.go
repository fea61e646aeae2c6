package rsstest

// mutate damages the frame in one to three ways.
func (g *Gen) mutate() {
	for range 1 + g.r.IntN(3) {
		switch g.r.IntN(6) {
		case 0:
			g.b = g.b[:g.r.IntN(len(g.b)+1)]
		case 1:
			g.b = g.b[:min(len(g.b), g.r.IntN(100))]
		case 2:
			g.flip()
		case 3:
			g.breakLength()
		case 4:
			g.breakHead()
		default:
			g.scramble()
		}
	}
}

// flip changes a byte among the headers.
func (g *Gen) flip() {
	if n := min(len(g.b), 160); n > 0 {
		g.b[g.r.IntN(n)] = pick(g, g.byte(), 0, 0xff)
	}
}

// breakLength writes a wrong length into an IP header: mostly a short one.
func (g *Gen) breakLength() {
	at := g.head()
	if at < 0 {
		return
	}
	if v6 := g.b[at]>>4 == 6; v6 {
		at += 2
	}
	g.set16(at+2, pick(g, 0, g.r.IntN(4), g.r.IntN(80), g.r.IntN(0x10000)))
}

// breakHead changes version and header length, or where the packet stands among fragments.
func (g *Gen) breakHead() {
	at := g.head()
	if at < 0 {
		return
	}
	if g.oneIn(2) {
		g.b[at] = g.byte()
		return
	}
	g.b[at+6+g.r.IntN(2)] ^= 1 << g.r.IntN(8)
}

// head returns where an IP header with its first eight bytes is, or -1.
func (g *Gen) head() int {
	if len(g.heads) == 0 {
		return -1
	}
	if at := g.heads[g.r.IntN(len(g.heads))]; at+8 <= len(g.b) {
		return at
	}
	return -1
}

// scramble makes part of the frame random, seldom all of it.
func (g *Gen) scramble() {
	if len(g.b) == 0 {
		return
	}
	from := g.r.IntN(len(g.b))
	if g.oneIn(4) {
		from = 0
	}
	n := min(1+g.r.IntN(16), len(g.b)-from)
	if g.oneIn(8) {
		n = len(g.b) - from
	}
	keep := len(g.b)
	g.b = g.b[:from]
	g.random(n)
	g.b = g.b[:keep]
}
