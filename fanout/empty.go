package fanout

import (
	"fmt"
	"slices"
	"time"
)

// emptyTime is how long Empty waits for what a port was given and the kernel has not taken.
const emptyTime = time.Second

// maxEmptied bounds what Empty receives of a lane whose sender never pauses: more batches than any
// port's kernel queue holds.
const maxEmptied = 1024

// Empty returns when every frame that was in the pair's ports when it was called, or was received
// before, has been sent or dropped. Frames that come meanwhile are forwarded too. With ErrStuck some may still be there.
func (p *Pool) Empty(pair *Pair) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.pairs, pair) {
		return fmt.Errorf("empty ports of pair %s: %w", pair.Name, ErrClosed)
	}
	for _, l := range pair.lanes() {
		if err := l.emptyPort(); err != nil {
			return fmt.Errorf("empty ports of pair %s: %w", pair.Name, err)
		}
	}
	for _, w := range append(slices.Clone(p.workers), pair.own) {
		if w == nil {
			continue
		}
		if err := w.do(func() error { w.drainAll(); return nil }); err != nil {
			return fmt.Errorf("empty ports of pair %s: %w", pair.Name, err)
		}
	}
	for _, l := range pair.lanes() {
		for _, tx := range l.txs {
			if tx == nil {
				continue
			}
			if err := waitSent(tx, emptyTime); err != nil {
				return fmt.Errorf("empty ports of pair %s: %w", pair.Name, err)
			}
		}
	}
	return nil
}

// emptyPort receives, a batch between two turns of the reader, until nothing is left.
func (l *Lane) emptyPort() error {
	for more, n := true, 0; more && n < maxEmptied; n++ {
		r := l.reader.Load()
		err := r.do(func() error {
			_, more = r.receive(l)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
