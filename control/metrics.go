package control

import (
	"io"
	"log"
	"net/http"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics answers Prometheus. What it says is read when it is asked: nothing is counted twice.
func (d *Daemon) metrics() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		&collector{d, newMetricSet()},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorLog: log.New(io.Discard, "", 0), MaxRequestsInFlight: 8})
}

// collector makes samples of what the daemon answers.
type collector struct {
	d *Daemon
	m *metricSet
}

// metricSet is all metrics of ours. Direction is "ab" or "ba", as in the API; worker is the thread's name.
type metricSet struct {
	byName map[string]*prometheus.Desc // all of them

	build, pairs, pairUp, pairInfo              *prometheus.Desc
	rx, rxBytes, tx, txBytes                    *prometheus.Desc
	drops, queued, imbalance                    *prometheus.Desc
	handed, batches                             *prometheus.Desc
	workerInfo, turns, empty                    *prometheus.Desc
	sleeps, wakes, yields, cpu, wait            *prometheus.Desc
	frames, queueMean, queueMax, sojourn        *prometheus.Desc
	stuck, faults                               *prometheus.Desc
	changes, failed, moved, held, move, blocked *prometheus.Desc
}

// all returns the metrics by name.
func (m *metricSet) all() map[string]*prometheus.Desc { return m.byName }

func newMetricSet() *metricSet {
	byName := map[string]*prometheus.Desc{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		name = "epair_" + name
		byName[name] = prometheus.NewDesc(name, help, labels, nil)
		return byName[name]
	}
	return &metricSet{
		byName:     byName,
		build:      desc("build_info", "What is running; always 1.", "version", "goversion"),
		pairs:      desc("pairs", "Pairs that there are."),
		pairUp:     desc("pair_up", "Whether both ends of the pair are up.", "pair"),
		pairInfo:   desc("pair_info", "How the pair is carried; always 1.", "pair", "datapath", "mode", "steer"),
		rx:         desc("rx_frames_total", "Frames that reached epair, those lost in front of a port included.", "pair", "direction"),
		rxBytes:    desc("rx_bytes_total", "Bytes of the frames that a port received.", "pair", "direction"),
		tx:         desc("tx_frames_total", "Frames handed to the far interface.", "pair", "direction"),
		txBytes:    desc("tx_bytes_total", "Bytes of these frames.", "pair", "direction"),
		drops:      desc("drops_total", "Frames that were dropped, by reason.", "pair", "direction", "reason"),
		queued:     desc("queued_frames", "Frames that were received and neither sent nor dropped yet.", "pair", "direction"),
		imbalance:  desc("imbalance_frames", "Received less sent, dropped and queued: not 0 is a fault of epair.", "pair", "direction"),
		handed:     desc("handed_frames_total", "Frames that one worker received and another sent.", "pair", "direction"),
		batches:    desc("batches_total", "Turns of workers in which anything was done.", "pair", "direction"),
		workerInfo: desc("worker_info", "Where the worker runs; always 1.", "worker", "cpu", "pair"),
		turns:      desc("worker_turns_total", "Turns of the worker's loop.", "worker"),
		empty:      desc("worker_empty_turns_total", "Polls that found nothing.", "worker"),
		sleeps:     desc("worker_sleeps_total", "Times that the worker slept.", "worker"),
		wakes:      desc("worker_wakes_total", "Times that the worker woke another.", "worker"),
		yields:     desc("worker_yields_total", "Times that the worker offered its CPU to others.", "worker"),
		cpu:        desc("worker_cpu_seconds_total", "Time that the worker's thread ran.", "worker"),
		wait:       desc("worker_wait_seconds_total", "Time that the thread could run and its CPU was taken.", "worker"),
		frames:     desc("worker_frames_total", "Frames that the worker received or that were handed over to it.", "worker"),
		queueMean:  desc("worker_queue_frames", "Frames handed over to the worker that wait, mean of the last second.", "worker"),
		queueMax:   desc("worker_queue_max_frames", "The same, the most.", "worker"),
		sojourn:    desc("worker_sojourn_seconds", "How long such frames wait, in the last second.", "worker", "statistic"),
		stuck:      desc("stuck", "Workers, rings and ports that have work and don't move."),
		faults:     desc("faults_total", "Times that one of them didn't move."),
		changes:    desc("fence_changes_total", "Live changes that were done."),
		failed:     desc("fence_failed_total", "Live changes that were given up; all stayed as it was."),
		moved:      desc("fence_moved_buckets_total", "Buckets that went to another worker."),
		held:       desc("fence_held_buckets_total", "Of these, those that had frames in flight."),
		move:       desc("fence_move_seconds", "From the request to the move of a bucket, since the start.", "statistic"),
		blocked:    desc("fence_blocked_seconds", "How long the direction that waited longest waited, per change.", "statistic"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.m.all() {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	o := out{ch}
	v, s := ThisVersion(), c.d.Stat()
	o.gauge(c.m.build, 1, v.Version, runtime.Version())
	o.gauge(c.m.pairs, float64(len(s.Pairs)))
	for i := range s.Pairs {
		c.pair(o, &s.Pairs[i])
	}
	c.workers(o, &s)
	c.fence(o)
}

// micro makes seconds of microseconds.
const micro = 1e-6

// out sends samples.
type out struct{ ch chan<- prometheus.Metric }

func (o out) gauge(d *prometheus.Desc, v float64, labels ...string) {
	o.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (o out) count(d *prometheus.Desc, v uint64, labels ...string) {
	o.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (o out) nanos(d *prometheus.Desc, v uint64, labels ...string) {
	o.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v)/1e9, labels...)
}

func (c *collector) pair(o out, p *Pair) {
	up := 0.0
	if p.State == "up" {
		up = 1
	}
	o.gauge(c.m.pairUp, up, p.Name)
	o.gauge(c.m.pairInfo, 1, p.Name, p.Datapath, p.Mode, p.Steer)
	for i, l := range []*Direction{&p.AB, &p.BA} {
		dir := []string{"ab", "ba"}[i]
		o.count(c.m.rx, l.Rx, p.Name, dir)
		o.count(c.m.rxBytes, l.RxBytes, p.Name, dir)
		o.count(c.m.tx, l.Tx, p.Name, dir)
		o.count(c.m.txBytes, l.TxBytes, p.Name, dir)
		o.gauge(c.m.queued, float64(l.Queued), p.Name, dir)
		o.gauge(c.m.imbalance, float64(l.Imbalance), p.Name, dir)
		var handed, batches uint64
		for i := range l.Workers {
			handed += l.Workers[i].Handed
			batches += l.Workers[i].Batches
		}
		o.count(c.m.handed, handed, p.Name, dir)
		o.count(c.m.batches, batches, p.Name, dir)
		for reason, n := range l.Drops {
			o.count(c.m.drops, n, p.Name, dir, reason)
		}
	}
}

// workers says how each worker spends its time. What it did for a pair is told with the pair: a sum over
// pairs would go backwards when one is deleted.
func (c *collector) workers(o out, s *Stat) {
	for i := range s.Workers {
		w := &s.Workers[i]
		o.gauge(c.m.workerInfo, 1, w.Name, strconv.Itoa(w.CPU), w.Pair)
		o.count(c.m.turns, w.Turns, w.Name)
		o.count(c.m.empty, w.Empty, w.Name)
		o.count(c.m.sleeps, w.Sleeps, w.Name)
		o.count(c.m.wakes, w.Wakes, w.Name)
		o.count(c.m.yields, w.Yields, w.Name)
		o.nanos(c.m.cpu, w.CPUNanos, w.Name)
		o.nanos(c.m.wait, w.WaitNanos, w.Name)
		o.count(c.m.frames, w.Frames, w.Name)
		o.gauge(c.m.queueMean, w.QueueMean, w.Name)
		o.gauge(c.m.queueMax, float64(w.QueueMax), w.Name)
		o.gauge(c.m.sojourn, w.SojournP50Micros*micro, w.Name, "p50")
		o.gauge(c.m.sojourn, w.SojournP99Micros*micro, w.Name, "p99")
		o.gauge(c.m.sojourn, w.SojournMaxMicros*micro, w.Name, "max")
	}
}

func (c *collector) fence(o out) {
	f := answerFence(c.d.pool.Fence())
	o.count(c.m.changes, f.Changes)
	o.count(c.m.failed, f.Failed)
	o.count(c.m.moved, f.Moved)
	o.count(c.m.held, f.Held)
	now, _, total := c.d.pool.Faults()
	o.gauge(c.m.stuck, float64(len(now)))
	o.count(c.m.faults, total)
	o.gauge(c.m.move, f.MoveP50Micros*micro, "p50")
	o.gauge(c.m.move, f.MoveP99Micros*micro, "p99")
	o.gauge(c.m.move, f.MoveMaxMicros*micro, "max")
	o.gauge(c.m.blocked, f.BlockedP50Micros*micro, "p50")
	o.gauge(c.m.blocked, f.BlockedMaxMicros*micro, "max")
}
