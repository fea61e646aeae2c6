package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/bench/report"
)

// Receiver is where the socket at the far end of a UDP flow runs.
type Receiver string

// Receivers there are. Without one, what counts is datagrams that reach the far interface (tcx ingress); the socket they
// go to isn't read.
const (
	NoReceiver    Receiver = "none"
	LoadReceiver  Receiver = "load"  // on the sender's CPU
	OtherReceiver Receiver = "other" // on a CPU that the sender isn't on: the pool's
)

// what says so for people.
func (r Receiver) what() string {
	switch r {
	case NoReceiver:
		return "nobody reads: arrivals count"
	case LoadReceiver:
		return "read on the sender's CPU"
	}
	return "read on another CPU"
}

// CheckReceivers refuses what there isn't.
func CheckReceivers(names []string) (list []Receiver, err error) {
	for _, n := range names {
		switch r := Receiver(n); r {
		case NoReceiver, LoadReceiver, OtherReceiver:
			list = append(list, r)
		default:
			return nil, fmt.Errorf("receiver %q (use none, load or other)", n)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no receiver named (use none, load or other)")
	}
	return list, nil
}

// settle is how long a flow runs before it is measured: the first frames of a topology find nothing ready.
const settle = 100 * time.Millisecond

// UDP measures one flow of small datagrams from a sender on the first of the load's CPUs, for each receiver.
func UDP(receivers ...Receiver) Measure {
	m := Measure{Sockets: true, Do: func(ctx context.Context, v *Visit) error {
		for k, where := range receivers {
			if err := v.udp(ctx, where, k); err != nil {
				return err
			}
		}
		return nil
	}}
	m.Check = func(p Place) error {
		for _, r := range receivers {
			if _, err := p.receiver(r); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range receivers {
		m.Variants = append(m.Variants, Variant{Name: fmt.Sprintf("one UDP flow of %d bytes, %s", bench.FlowDatagram, r.what())})
	}
	return m
}

func (v *Visit) udp(ctx context.Context, where Receiver, k int) error {
	a, b, err := v.hosts()
	if err != nil {
		return err
	}
	a.CPUs = a.CPUs[:1]
	if b.CPUs, err = v.run.Place.receiver(where); err != nil {
		return err
	}
	_, ifindex := v.Topology.Sink()
	flow := func(d time.Duration) (bench.Flow, error) {
		return bench.UDPFlow(ctx, a, b, ifindex, where != NoReceiver, d)
	}
	if _, err := flow(settle); err != nil {
		return err
	}
	var f bench.Flow
	noise, busy, err := v.watched(func() (err error) { f, err = flow(v.run.Time); return err })
	if err != nil {
		return err
	}
	if f.Arrived == 0 {
		return fmt.Errorf("%d datagrams were sent and none arrived", f.Sent)
	}
	x := report.Round{
		OfferedPPS: f.Rate(f.Sent), Offered: f.Sent, PPS: f.Rate(f.Arrived), Lost: f.Sent - min(f.Sent, f.Arrived), Noise: &noise,
		Values: map[string]float64{"sent/s": f.Rate(f.Sent), "CPUs busy": busy},
	}
	if where != NoReceiver {
		x.PPS, x.Lost = f.Rate(f.Delivered), f.Sent-min(f.Sent, f.Delivered)
		x.Values["arrived/s"] = f.Rate(f.Arrived)
	}
	v.Add(k, x, nil)
	return nil
}

// receiver returns the CPU of the receiving socket.
func (p Place) receiver(where Receiver) ([]int, error) {
	if where != OtherReceiver {
		return p.Load[:1], nil
	}
	for _, c := range p.Forward {
		if c != p.Load[0] {
			return []int{c}, nil
		}
	}
	return nil, errors.New("receiver other: there is no other CPU than the sender's (see --cpus and --receiver)")
}
