package epair

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// ErrClosed says that the Env was closed.
var ErrClosed = errors.New("environment is closed")

// EnvConfig is the settings of an Env. The zero value will do.
type EnvConfig struct {
	Dir    string // where instances have their locks; /run/epair
	Queues int    // of each veth side, both ways, and of each tap; 1. With port xdp the outer side receives from one
}

// Env is where one process keeps its pairs: the private namespace of the outer
// veth sides, the instance's lock, and the watch over the state of all ends.
//
// Concurrency contract: all methods, and those of the pairs, may be called from any goroutine.
type Env struct {
	queues  int
	host    string // what derived MAC addresses start from
	inst    *instance
	private *netns.NS
	out     *netlink.Handle // of the private namespace
	mon     *monitor

	// For tests.
	tun     string                  // path of the TAP clone device
	patient time.Duration           // how long Up waits for a carrier
	fault   func(step string) error // unless nil, asked before each step of Create and Up

	closing atomic.Bool  // set by Close before it waits for life; read by Up
	life    sync.RWMutex // read-held by every operation, so that Close comes after it
	closed  bool         // guarded by life

	mu    sync.Mutex       // guards what follows
	count int              // of names and groups given out
	mine  map[string]bool  // instances of persistent pairs that this process looks after
	pairs map[string]*Pair // nil while it's being created
	devs  map[devID]string // dev ends in use, and the pair that uses them

	spaceMu sync.Mutex     // held while namespaces are created, adopted and deleted
	spaces  map[string]int // named namespaces that we own, and how many ends use them
}

type devID struct {
	ns    netns.ID
	index int
}

// upTimeout is how long a carrier may take. The kernel delays it by a second at most,
// times what a loaded or emulated machine makes of that.
const upTimeout = 30 * time.Second

// NewEnv makes an Env. It costs three sockets and a namespace, and no thread.
func NewEnv(c EnvConfig) (*Env, error) {
	e := &Env{
		queues: max(c.Queues, 1), tun: "/dev/net/tun", patient: upTimeout,
		pairs: map[string]*Pair{}, devs: map[devID]string{}, spaces: map[string]int{}, mine: map[string]bool{},
	}
	var err error
	if e.host, err = hostID(); err != nil {
		return nil, err
	}
	if e.inst, err = newInstance(cmp.Or(c.Dir, "/run/epair")); err != nil {
		return nil, err
	}
	if err := e.openPrivate(); err != nil {
		return nil, errors.Join(caps.Explain(err, caps.SysAdmin, caps.NetAdmin), e.free())
	}
	return e, nil
}

// openPrivate makes the private namespace: IPv6 is off before there is an interface that could
// send its own frames, and lo stays down.
func (e *Env) openPrivate() (err error) {
	if e.private, err = newPrivate(); err != nil {
		return err
	}
	if e.out, err = open(e.private); err != nil {
		return err
	}
	e.mon, err = newMonitor(e.private, e.out)
	return err
}

// newPrivate makes a namespace for outer sides.
func newPrivate() (*netns.NS, error) {
	ns, err := netns.NewAnonymous()
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		for _, which := range []string{"all", "default"} {
			err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a kernel without IPv6
			}
			if err != nil {
				return fmt.Errorf("turn IPv6 off in the private namespace: %w (needs a writable /proc/sys)", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// Close deletes all pairs but persistent ones that are ready, and gives everything back. It waits for operations that run,
// and is idempotent.
func (e *Env) Close() error {
	e.closing.Store(true) // pairs with awaitCarrier
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var stay, doomed []*Pair
	for _, p := range e.Pairs() {
		if p.ready() {
			stay = append(stay, p)
		} else {
			doomed = append(doomed, p)
		}
	}
	err := errors.Join(e.leaveAll(stay), e.deleteAll(doomed))
	if err != nil {
		e.inst.keep = true // so that what is left is known to be an orphan
	}
	return errors.Join(err, e.free())
}

// begin starts an operation, which ends with e.life.RUnlock.
func (e *Env) begin() error {
	e.life.RLock()
	if e.closed {
		e.life.RUnlock()
		return ErrClosed
	}
	return nil
}

// free gives back what NewEnv made, in reverse.
func (e *Env) free() error {
	if e.mon != nil {
		e.mon.close()
	}
	if e.out != nil {
		e.out.Close()
	}
	var err error
	if e.private != nil {
		err = e.private.Close()
	}
	return errors.Join(err, e.inst.close())
}

// ID is the instance's UUID, which is in all its tags.
func (e *Env) ID() string { return e.inst.id }

// Pairs returns the pairs that exist, in no order.
func (e *Env) Pairs() []*Pair {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*Pair, 0, len(e.pairs))
	for _, p := range e.pairs {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// admit reserves the name of a pair that is about to be created.
func (e *Env) admit(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, taken := e.pairs[name]; taken {
		return fmt.Errorf("name is taken: %w (choose another)", fs.ErrExist)
	}
	e.pairs[name] = nil
	return nil
}

// publish makes a pair known that was created, or, if p is nil, its name free.
func (e *Env) publish(name string, p *Pair) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p == nil {
		delete(e.pairs, name)
	} else {
		e.pairs[name] = p
	}
}

// claimDev registers a dev end, which can be in one pair only.
func (e *Env) claimDev(id devID, pair string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if user, taken := e.devs[id]; taken {
		return fmt.Errorf("it is an end of pair %s already", user)
	}
	e.devs[id] = pair
	return nil
}

func (e *Env) unclaimDev(id devID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.devs, id)
}

// number returns a number that this Env hasn't given out yet.
func (e *Env) number() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	return e.count
}

// tempName is a name for an interface that no other instance gives out.
func (e *Env) tempName(kind byte) string {
	return "e" + e.inst.id[:6] + string(kind) + strconv.FormatInt(int64(e.number()), 36)
}

// step lets a test make the step fail.
func (e *Env) step(format string, args ...any) error {
	if e.fault == nil {
		return nil
	}
	return e.fault(fmt.Sprintf(format, args...))
}

// groupBase keeps our groups away from the numbers that people and iproute2 use.
const groupBase = 0x65700000

// newGroup returns a link group that is in use nowhere in the private namespace.
func (e *Env) newGroup() uint32 { return groupBase + uint32(e.number()) }
