//go:build epairdebug

package xdp

import (
	"fmt"
	"sync/atomic"
)

// debug tells that the place of each chunk is checked.
const debug = true

// owners knows where each chunk is. It stops the program when one is moved from where it isn't:
// it was in two places then, and frames in it are overwritten.
type owners struct{ at []atomic.Uint32 }

func (o *owners) init(chunks int) { o.at = make([]atomic.Uint32, chunks) }

func (o *owners) move(c uint32, from, to place) {
	if !o.at[c].CompareAndSwap(uint32(from), uint32(to)) {
		panic(fmt.Sprintf("chunk %d is in place %d, not %d, and was to go to %d", c, o.at[c].Load(), from, to))
	}
}
