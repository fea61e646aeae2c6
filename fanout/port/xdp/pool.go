package xdp

import (
	"sync/atomic"

	"github.com/epair-net/epair/fanout/port"
)

// pool is the stack of a UMEM's free chunks. All halves of a pair use it: whoever gets a chunk
// back puts it here, whoever is short takes it here, so that no queue starves
// while another has more than it needs. A batch costs one compare-and-swap.
//
// Concurrency contract: any goroutine, at any time, without a lock. A call that is
// interrupted holds up nobody.
type pool struct {
	_    [64]byte
	head atomic.Uint64 // changes so far << 32 | number of the topmost chunk + 1
	_    [56]byte      // the links are read more often than they change
	next []atomic.Uint32
}

func (p *pool) init(chunks int) {
	p.next = make([]atomic.Uint32, chunks)
	for i := range p.next {
		p.put([]uint32{uint32(chunks - 1 - i)})
	}
}

// put gives chunks back.
func (p *pool) put(c []uint32) {
	if len(c) == 0 {
		return
	}
	for i := 1; i < len(c); i++ {
		p.next[c[i-1]].Store(c[i] + 1)
	}
	last := &p.next[c[len(c)-1]]
	for {
		h := p.head.Load()
		last.Store(uint32(h))
		if p.head.CompareAndSwap(h, (h>>32+1)<<32|uint64(c[0]+1)) { // pairs with take
			return
		}
	}
}

// take fills c with free chunks, as far as there are any, and returns how many.
//
// What it reads behind the head may be changed meanwhile by others, but never without
// the count in head, and then what was read is thrown away.
func (p *pool) take(c []uint32) int {
	for {
		h := p.head.Load() // pairs with put
		n, at := 0, uint32(h)
		for n < len(c) && at != 0 {
			c[n] = at - 1
			at = p.next[at-1].Load()
			n++
		}
		if n == 0 || p.head.CompareAndSwap(h, (h>>32+1)<<32|uint64(at)) {
			return n
		}
	}
}

// len counts the free chunks. Nobody may put or take meanwhile.
func (p *pool) len() int {
	n := 0
	for at := uint32(p.head.Load()); at != 0 && n <= len(p.next); at = p.next[at-1].Load() {
		n++
	}
	return n
}

// returns collects chunks for the pool, so that they go back a batch at a time.
type returns struct {
	n int
	c [port.MaxBatch]uint32
}

func (r *returns) add(p *pool, c uint32) {
	r.c[r.n] = c
	if r.n++; r.n == len(r.c) {
		r.flush(p)
	}
}

func (r *returns) flush(p *pool) {
	p.put(r.c[:r.n])
	r.n = 0
}
