// Package topo makes what is measured: namespaces, the veths between them, and what
// joins those.
//
//	Bare    load ns [load]═══════════════════════[sink] sink ns
//	Side    the same, n times side by side between two namespaces
//	Split   load ns [load]═══[in] middle ns [out]═══[sink] sink ns
//
// The namespaces have no name and end with the process. Nothing in them sends by itself.
package topo

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/epair-net/epair/internal/netns"
)

// Names of the interfaces, each in its namespace.
const (
	LoadName = "load"
	SinkName = "sink"
	InName   = "in"
	OutName  = "out"
)

// End is one interface.
type End struct {
	NS    *netns.NS
	Index int
}

// Topo is a set of namespaces and veths. It closes what it was given to own, last first.
type Topo struct {
	load, sink End
	stacked    bool
	owned      []io.Closer
}

// Load is where frames go in.
func (t *Topo) Load() (ns, ifindex int) { return t.load.NS.FD(), t.load.Index }

// Sink is where they should come out.
func (t *Topo) Sink() (ns, ifindex int) { return t.sink.NS.FD(), t.sink.Index }

// Stack makes trials count frames as socket buffers, also those that enter as XDP frames. It is a bench.Stacked then.
func (t *Topo) Stack() error {
	t.stacked = true
	return NAPI(t.sink)
}

// CountSkbs says whether Stack was called.
func (t *Topo) CountSkbs() bool { return t.stacked }

// Own makes Close close c, before what is there already.
func (t *Topo) Own(c io.Closer) { t.owned = append(t.owned, c) }

// Close removes everything. It is idempotent.
func (t *Topo) Close() error {
	var errs []error
	for i := len(t.owned) - 1; i >= 0; i-- {
		errs = append(errs, t.owned[i].Close())
	}
	t.owned = nil
	return errors.Join(errs...)
}

// Bare is one veth: what the load and the sink cost without anything between.
func Bare(mtu int) (t *Topo, err error) {
	t = &Topo{}
	defer t.undo(&t, &err)
	a, b, err := t.spaces()
	if err != nil {
		return t, err
	}
	t.load, t.sink, err = veth(a, LoadName, b, SinkName, mtu)
	return t, err
}

// Wide is a topology with several ways. It is a bench.Wide.
type Wide struct {
	*Topo
	loads, sinks []int
}

// Also returns the further ways' interfaces.
func (w *Wide) Also() (load, sink []int) { return w.loads, w.sinks }

// Side is n veths, at least one.
func Side(n, mtu int) (w *Wide, err error) {
	t := &Topo{}
	w = &Wide{Topo: t}
	defer func() {
		if t.undo(&t, &err); err != nil {
			w = nil
		}
	}()
	a, b, err := t.spaces()
	if err != nil {
		return w, err
	}
	t.load, t.sink, err = veth(a, LoadName, b, SinkName, mtu)
	for i := 1; i < n && err == nil; i++ {
		var l, s End
		l, s, err = veth(a, LoadName+strconv.Itoa(i), b, SinkName+strconv.Itoa(i), mtu)
		w.loads, w.sinks = append(w.loads, l.Index), append(w.sinks, s.Index)
	}
	return w, err
}

// Join starts what carries frames from in to out, in the namespace of both.
type Join func(in, out End) (io.Closer, error)

// Split is two veths whose near ends join connects. Frames that enter as XDP frames need napi at the end that
// receives them, unless join puts an XDP program there.
func Split(napi bool, mtu int, join Join) (t *Topo, err error) {
	t = &Topo{}
	defer t.undo(&t, &err)
	a, b, err := t.spaces()
	if err != nil {
		return t, err
	}
	mid, err := t.space()
	if err != nil {
		return t, err
	}
	var in, out End
	if t.load, in, err = veth(a, LoadName, mid, InName, mtu); err != nil {
		return t, err
	}
	if out, t.sink, err = veth(mid, OutName, b, SinkName, mtu); err != nil {
		return t, err
	}
	if napi {
		if err := NAPI(in); err != nil {
			return t, err
		}
	}
	c, err := join(in, out)
	if err == nil {
		t.Own(c)
	}
	return t, err
}

// undo closes a topology that wasn't completed.
func (t *Topo) undo(out **Topo, err *error) {
	if *err != nil {
		*err = errors.Join(fmt.Errorf("make topology: %w", *err), t.Close())
		*out = nil
	}
}

// spaces makes the namespaces of load and sink.
func (t *Topo) spaces() (a, b *netns.NS, err error) {
	if a, err = t.space(); err == nil {
		b, err = t.space()
	}
	return a, b, err
}

func (t *Topo) space() (*netns.NS, error) {
	ns, err := Space()
	if err == nil {
		t.Own(ns)
	}
	return ns, err
}
