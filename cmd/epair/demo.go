package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/epair-net/epair/bench"
	"github.com/epair-net/epair/control"
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/netns"
)

// Durations of the demo's parts: all cells together take less than 30 s.
const (
	demoBulk = 700 * time.Millisecond
	demoRR   = 400 * time.Millisecond
)

// demoDatapaths is what the demo shows, each in every mode.
var demoDatapaths = []struct{ name, datapath, port string }{
	{"direct", "direct", ""}, {"tc", "tc", ""}, {"xdp", "xdp", ""}, {"user-packet", "user", "packet"},
}

func newDemo(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Send real traffic through every datapath and mode and print a table", Args: noArgs,
		Long: `Two namespaces, one pair per datapath and mode in turn, and real sockets on both sides: one
TCP stream, small UDP datagrams, and one-byte requests. It takes less than 30 seconds
and leaves nothing behind. What can't be had here is named with its reason.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.demo(cmd.Context()) },
	}
}

// demoRow is what one mode reached.
type demoRow struct {
	Cell    string  `json:"cell"`
	Gbps    float64 `json:"tcp_gbps"`
	Kpps    float64 `json:"udp_kpps_delivered"`
	P50     float64 `json:"rtt_p50_us"`
	P99     float64 `json:"rtt_p99_us"`
	CPUs    float64 `json:"cpus_busy_tcp"`
	Frames  uint64  `json:"frames"`
	Dropped uint64  `json:"dropped"`
	Refused string  `json:"refused,omitempty"` // why the cell can't be had here
}

func (e *env) demo(ctx context.Context) error {
	var rows []demoRow
	var failed error
all:
	for _, dp := range demoDatapaths {
		for _, mode := range []string{"inline", "pool", "poller"} {
			r, err := e.demoCell(ctx, dp.name+"/"+mode, demoConfig(dp.datapath, dp.port, mode))
			if err != nil && !errors.Is(err, control.ErrRefused) {
				failed = fmt.Errorf("demo of %s: %w", r.Cell, err)
				break all
			}
			rows = append(rows, r)
		}
	}
	e.progress("")
	if len(rows) == 0 {
		return e.interrupted(ctx, failed)
	}
	if e.json {
		return errors.Join(e.printJSON(rows), e.interrupted(ctx, failed))
	}
	if err := e.demoTable(rows); err != nil {
		return err
	}
	if failed == nil {
		fmt.Fprintln(e.out, "\nMeasured at the receiving sockets; sender, receiver and forwarding share this machine's CPUs.\nEvery ledger balanced to the frame. UDP is sent as fast as the sender can: what is dropped is counted.")
	}
	return e.interrupted(ctx, failed)
}

func (e *env) demoTable(rows []demoRow) error {
	t := e.table("CELL", "TCP Gbit/s", "UDP kpps", "RTT p50 µs", "RTT p99 µs", "CPUs (TCP)", "FRAMES", "DROPPED")
	for _, r := range rows {
		if r.Refused != "" {
			continue
		}
		t.row(r.Cell, fmt.Sprintf("%.2f", r.Gbps), fmt.Sprintf("%.0f", r.Kpps), fmt.Sprintf("%.0f", r.P50),
			fmt.Sprintf("%.0f", r.P99), fmt.Sprintf("%.2f", r.CPUs), r.Frames, r.Dropped)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Refused != "" {
			fmt.Fprintf(e.out, "%s: %s\n", r.Cell, r.Refused)
		}
	}
	return nil
}

// interrupted makes one line of what ended the demo early.
func (e *env) interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("demo: interrupted; everything it made is gone")
	}
	return err
}

// progress shows one changing line where the standard error is a terminal, for people only.
func (e *env) progress(format string, args ...any) {
	if e.json || !isTerminal(e.err) {
		return
	}
	fmt.Fprintf(e.err, "\r\x1b[K"+format, args...)
}

// demoCell runs all traffic through one pair.
func (e *env) demoCell(ctx context.Context, name string, cfg *epair.Config) (r demoRow, err error) {
	r.Cell = name
	e.progress("%s: creating", r.Cell)
	d, err := control.Start(ctx, cfg)
	if errors.Is(err, control.ErrRefused) {
		r.Refused = err.Error()
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	a, closeA, err := demoHost(cfg.Pairs[0].A)
	if err != nil {
		return r, err
	}
	defer closeA()
	b, closeB, err := demoHost(cfg.Pairs[0].B)
	if err != nil {
		return r, err
	}
	defer closeB()
	if err := e.demoTraffic(ctx, &r, a, b); err != nil {
		return r, err
	}
	audit := d.Audit()
	for _, f := range audit.Findings {
		return r, fmt.Errorf("ledger of %s %s: %s", f.Pair, f.Direction, f.What)
	}
	r.Frames = audit.Frames
	for _, p := range d.Pairs() {
		for _, l := range []control.Direction{p.AB, p.BA} {
			for _, n := range l.Drops {
				r.Dropped += n
			}
		}
	}
	return r, nil
}

func (e *env) demoTraffic(ctx context.Context, r *demoRow, a, b bench.Host) error {
	e.progress("%s: one TCP stream", r.Cell)
	before, err := bench.CPUTime()
	if err != nil {
		return err
	}
	tcp, err := bench.TCP(ctx, a, b, demoBulk)
	if err != nil {
		return err
	}
	after, err := bench.CPUTime()
	if err != nil {
		return err
	}
	e.progress("%s: small UDP datagrams", r.Cell)
	udp, err := bench.UDP(ctx, a, b, demoBulk)
	if err != nil {
		return err
	}
	e.progress("%s: request and response", r.Cell)
	rtt, err := bench.RR(ctx, a, b, demoRR)
	if err != nil {
		return err
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	r.Gbps, r.Kpps = tcp.Gbps(), udp.Kpps()
	r.P50, r.P99 = us(rtt.Percentile(50)), us(rtt.Percentile(99))
	r.CPUs = (after - before).Seconds() / tcp.Elapsed.Seconds()
	return nil
}

// demoConfig is one pair between two namespaces that nothing else uses.
func demoConfig(datapath, port, mode string) *epair.Config {
	end := func(side, addr string) epair.EndConfig {
		return epair.EndConfig{
			Kind: epair.Veth, Name: "eth0", Netns: fmt.Sprintf("epair-demo-%d-%s", os.Getpid(), side),
			Addresses: []string{addr},
		}
	}
	p := epair.PairConfig{Name: "demo", A: end("a", "10.255.0.1/30"), B: end("b", "10.255.0.2/30"), Datapath: datapath, Port: port, Mode: mode}
	return &epair.Config{Version: epair.Version, Pairs: []epair.PairConfig{p.WithDefaults()}}
}

func demoHost(c epair.EndConfig) (h bench.Host, done func() error, err error) {
	ns, err := netns.Open(c.Netns)
	if err != nil {
		return h, nil, err
	}
	return bench.Host{NS: ns.FD(), Addr: netip.MustParsePrefix(c.Addresses[0]).Addr()}, ns.Close, nil
}
