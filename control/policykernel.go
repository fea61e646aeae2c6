package control

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/epair-net/epair/fanout"
	"github.com/epair-net/epair/fanout/kern"
	"github.com/epair-net/epair/rss"
)

// moveTime is how long buckets may take to move in the kernel: one that takes longer is stuck.
const moveTime = 5 * time.Second

// setAll gives the workers and the crossings another hash and table. All or nothing. d.policy is held.
func (d *Daemon) setAll(next *fanout.Steering) (fanout.Change, error) {
	c, err := d.pool.SetSteering(next)
	if err != nil {
		return c, err
	}
	if err := d.kernel.set(d.steer, next, d.cpus); err != nil {
		_, undo := d.pool.SetSteering(d.steer)
		return c, errors.Join(fmt.Errorf("set rss of kernel datapaths: %w", err), undo)
	}
	d.setSteer(next)
	return c, nil
}

// set gives all crossings another hash and table; none, if there are none. After an error the old ones hold.
// The caller holds Daemon.policy, so that crossings only become fewer.
func (k *kernel) set(old, next *fanout.Steering, cpus []int) error {
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	err := k.replace(p, old, next, cpus)
	if err != nil {
		err = errors.Join(err, p.SetHasher(old.Hasher()), p.SetTable(old.Table(), cpus))
	}
	return err
}

// replace changes the table; and the hash between two tables, the first of which leaves all buckets to one worker. The second
// comes when every frame of the old hash is out: it is counted for another bucket than those of its flow that follow.
func (k *kernel) replace(p *kern.Policy, old, next *fanout.Steering, cpus []int) error {
	if !reflect.DeepEqual(old.Hasher().Config(), next.Hasher().Config()) {
		one, err := rss.ParseTable("equal 1", old.Table().Size(), len(cpus))
		if err != nil {
			return err
		}
		if err := k.table(p, one, cpus); err != nil {
			return err
		}
		if err := p.SetHasher(next.Hasher()); err != nil {
			return err
		}
		if err := k.drain(); err != nil {
			return err
		}
	}
	return k.table(p, next.Table(), cpus)
}

// setCPUs gives all crossings' workers other CPUs. After an error the old ones hold.
func (k *kernel) setCPUs(t *rss.Table, old, next []int) error {
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	err := k.table(p, t, next)
	if err != nil {
		err = errors.Join(err, p.SetTable(t, old))
	}
	return err
}

// table gives all crossings another table, or other CPUs, and waits until their buckets have moved.
func (k *kernel) table(p *kern.Policy, t *rss.Table, cpus []int) error {
	if err := p.SetTable(t, cpus); err != nil {
		return err
	}
	for end, wait := time.Now().Add(moveTime), time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		left, err := k.moving()
		if left == 0 || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d buckets have frames in flight after %v: %w", left, moveTime, fanout.ErrStuck)
		}
		time.Sleep(wait)
	}
}

// moving returns how many buckets of all crossings aren't where the table wants them.
func (k *kernel) moving() (left int, err error) {
	for _, c := range k.all() {
		n, err := c.Moving()
		if err != nil && slices.Contains(k.all(), c) { // else it was closed meanwhile
			return 0, err
		}
		left += n
	}
	return left, nil
}

// drain returns when what was hashed before is out of all crossings.
func (k *kernel) drain() error {
	for _, c := range k.all() {
		if err := c.Drain(); err != nil && slices.Contains(k.all(), c) { // else it was closed meanwhile
			return err
		}
	}
	return nil
}

func (k *kernel) all() []kern.Crossing {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.crossings))
}
