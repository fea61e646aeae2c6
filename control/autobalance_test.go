package control

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/netns"
)

//	namespace a: 32 flows ── pair in mode pool, 2 workers ── namespace b
//	the table gives worker 1 one bucket of 16

// A daemon that rebalances by itself finds out that one worker has all the load, and moves buckets; and it
// ends while that goes on.
func TestAutoBalance(t *testing.T) {
	needRoot(t)
	end := func(side string, host int) epair.EndConfig {
		return epair.EndConfig{
			Kind: epair.Veth, Name: "e0", Netns: fmt.Sprintf("epair-auto-%d-%s", os.Getpid(), side),
			Addresses: []string{fmt.Sprintf("10.66.9.%d/24", host)},
		}
	}
	p := epair.PairConfig{Name: "p", A: end("a", 1), B: end("b", 2), Datapath: "user", Mode: "pool"}
	d, err := Start(t.Context(), &epair.Config{
		Version: epair.Version, Pool: epair.PoolConfig{CPUs: "0,0"}, RSS: epair.RSSConfig{Table: "weight 15 1"},
		Pairs: []epair.PairConfig{p.WithDefaults()},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		manyFlows(t, p.A.Netns, stop)
	}()
	d.keepBalanced(10 * time.Millisecond)
	for limit := time.Now().Add(30 * time.Second); d.Pool().Balance.Done == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("no bucket moved: %+v", d.Pool().Balance)
		}
	}
	own := map[int]int{}
	for _, w := range d.RSS().Table {
		own[w]++
	}
	if own[1] <= 8 {
		t.Errorf("buckets by worker: %v", own)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	close(stop)
	<-done
}

// manyFlows sends small datagrams of 32 flows.
func manyFlows(t *testing.T, space string, stop chan struct{}) {
	ns, err := netns.Open(space)
	if err != nil {
		t.Error(err)
		return
	}
	defer ns.Close()
	var conns []net.Conn
	err = ns.Do(func() error {
		for range 32 {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.66.9.2:9")))
			if err != nil {
				return err
			}
			conns = append(conns, c)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for {
		for _, c := range conns {
			_, _ = c.Write(make([]byte, 18)) // refused by the far host, or by no route at the end
		}
		select {
		case <-stop:
			for _, c := range conns {
				_ = c.Close()
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}
