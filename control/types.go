// Package control joins the halves: it creates the pairs that a configuration
// names, lets the pool forward them, and answers for them over a Unix socket.
package control

import (
	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/rss"
)

// The JSON that the API and `--json` speak. Keys may be added; those here stay.

// Direction is the ledger of one direction: rx = tx + Σ drops + queued.
type Direction struct {
	Rx        uint64            `json:"rx"`
	RxBytes   uint64            `json:"rx_bytes"`
	Tx        uint64            `json:"tx"`
	TxBytes   uint64            `json:"tx_bytes"`
	Queued    uint64            `json:"queued"`
	Drops     map[string]uint64 `json:"drops"`
	Imbalance int64             `json:"imbalance"`
	Workers   []Share           `json:"workers,omitempty"`

	// Of a kernel datapath.
	Unsteered uint64   `json:"unsteered,omitempty"` // of rx: frames that came past every program, for which the kernel chose the CPU
	PerCPU    []uint64 `json:"tx_by_cpu,omitempty"` // tx, by CPU number
}

// Share is one worker's part in a direction: rx + taken = tx + Σ drops + handed + queued.
type Share struct {
	Worker  int    `json:"worker"`
	Rx      uint64 `json:"rx"`
	Tx      uint64 `json:"tx"`
	Handed  uint64 `json:"handed"`
	Taken   uint64 `json:"taken"`
	Batches uint64 `json:"batches"`

	Imbalance int64 `json:"imbalance"`
}

// End is one end of a pair as it is now.
type End struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Netns     string   `json:"netns"`
	State     string   `json:"state"` // up, down or gone
	MAC       string   `json:"mac"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses,omitempty"`
	Port      string   `json:"port"`
}

// Pair is a pair with its ledger.
type Pair struct {
	Name     string   `json:"name"`
	State    string   `json:"state"` // the worse of its ends
	Datapath string   `json:"datapath"`
	Mode     string   `json:"mode"`
	Why      []string `json:"why"`
	Steer    string   `json:"steer,omitempty"`   // mode pool: kernel (frames come to their worker) or user (workers hand over)
	Workers  []int    `json:"served_by"`         // who receives a→b and b→a
	Persist  bool     `json:"persist,omitempty"` // it goes on without the daemon
	A        End      `json:"a"`
	B        End      `json:"b"`
	// Of a kernel datapath.
	Notes   []string `json:"notes,omitempty"`   // what it costs, what it changed, what its ledger can't see
	Trouble string   `json:"trouble,omitempty"` // why the ledger couldn't be read
	Threads []Thread `json:"threads,omitempty"` // of the kernel, that serve the pair
	// Of mode pool, when this pair alone is asked for.
	Elephants []Elephant `json:"elephants,omitempty"` // flows with a tenth of a direction's load or more

	AB Direction `json:"ab"`
	BA Direction `json:"ba"`
}

// Thread is a thread of the kernel.
type Thread struct {
	PID  int    `json:"pid"`
	CPU  int    `json:"cpu"`
	Name string `json:"name"`
}

// Worker is a thread of the pool, or a pair's poller.
type Worker struct {
	ID     int    `json:"id"`
	Name   string `json:"name"`
	CPU    int    `json:"cpu"`
	TID    int    `json:"tid"`
	Pair   string `json:"pair,omitempty"` // whose poller it is
	Turns  uint64 `json:"turns"`
	Empty  uint64 `json:"empty_turns"`
	Sleeps uint64 `json:"sleeps"`
	Wakes  uint64 `json:"wakes"`
	Yields uint64 `json:"yields"`
	Frames uint64 `json:"frames"` // received by it or handed over to it
	// Times that so many frames came at once: 1, 2 or 3, 4 to 7, … 64.
	Batches []uint64 `json:"batches"`
	// Frames handed over to it that wait, as it finds them, and how long they wait: in the last second, and 0
	// when none are handed over.
	QueueMin         int     `json:"queue_min"`
	QueueMean        float64 `json:"queue_mean"`
	QueueMax         int     `json:"queue_max"`
	SojournP50Micros float64 `json:"sojourn_p50_us"`
	SojournP99Micros float64 `json:"sojourn_p99_us"`
	SojournMaxMicros float64 `json:"sojourn_max_us"`
	// What the kernel says of the thread (/proc/PID/task/TID/schedstat).
	CPUNanos  uint64 `json:"cpu_ns"`  // it ran
	WaitNanos uint64 `json:"wait_ns"` // it could run, but another had its CPU
}

// Fault is a worker, ring or port that doesn't move, or didn't.
type Fault struct {
	What  string `json:"what"`
	Since string `json:"since"`           // RFC 3339
	Until string `json:"until,omitempty"` // when it moved again
	Kicks int    `json:"kicks"`           // how often it was kicked
}

// Stat is everything that is counted.
type Stat struct {
	Pairs   []Pair   `json:"pairs"`
	Workers []Worker `json:"workers"`
}

// Change is what a live change did. No frame is lost or overtaken by it but those in Dropped.
type Change struct {
	Moved   int    `json:"moved_buckets"` // that went to another worker, over all directions
	Held    int    `json:"held_buckets"`  // of these, those that had frames in flight when they were to move
	Lanes   int    `json:"moved_readers"` // directions that another worker receives now
	Dropped uint64 `json:"dropped"`       // frames that were dropped to keep their flow in order

	TookMicros    float64 `json:"took_us"`     // from the request to its end
	MoveP50Micros float64 `json:"move_p50_us"` // from the request to the move of a bucket, half of them
	MoveMaxMicros float64 `json:"move_max_us"` // of all of them
	BlockedMicros float64 `json:"blocked_us"`  // the longest time that frames of a direction waited in their port, or were dropped
}

// Pairs is a list of pairs.
type Pairs struct {
	Pairs []Pair `json:"pairs"`
}

// Adding is what pairs to create.
type Adding struct {
	Pairs []epair.PairConfig `json:"pairs"`
}

// Removed says which pairs are gone.
type Removed struct {
	Removed []string `json:"removed"`
}

// PairChange is what to change of a pair; what is empty stays.
type PairChange struct {
	Mode     string `json:"mode,omitempty"`
	Datapath string `json:"datapath,omitempty"`
	Lossless bool   `json:"lossless,omitempty"` // refuse what can't be done without dropping frames
}

// Changed is a pair after a change.
type Changed struct {
	Pair   Pair   `json:"pair"`
	Change Change `json:"change"`
}

// RSS is which worker owns which flow.
type RSS struct {
	Func      string            `json:"func"`
	Key       string            `json:"key,omitempty"` // hexadecimal; xxhash has none
	Symmetric bool              `json:"symmetric"`
	Fields    map[string]string `json:"fields"`
	Inner     bool              `json:"inner"`
	Workers   int               `json:"workers"`
	Table     []int             `json:"table"` // the worker of each bucket
}

// RSSChange is what to change of RSS; what is left out stays, also flow types that Fields doesn't name.
type RSSChange struct {
	Func      *string            `json:"func,omitempty"`
	Key       *string            `json:"key,omitempty"`
	Symmetric *bool              `json:"symmetric,omitempty"`
	Fields    *map[string]string `json:"fields,omitempty"`
	Inner     *bool              `json:"inner,omitempty"`
	Table     *string            `json:"table,omitempty"` // equal [N], weight W0 W1 …, or a list of workers
}

// RSSChanged is RSS after a change.
type RSSChanged struct {
	RSS    RSS    `json:"rss"`
	Change Change `json:"change"`
}

// Elephant is a flow with much load.
type Elephant struct {
	Pair      string  `json:"pair"`
	Direction string  `json:"direction"` // ab or ba
	Flow      string  `json:"flow"`      // type, source, destination
	Share     float64 `json:"share"`     // of the direction's load, at least; 1 is all
	Hash      string  `json:"hash"`      // hexadecimal
	Bucket    int     `json:"bucket"`
	Worker    int     `json:"worker"` // that sends it
}

// Loads is the load of each bucket of the table, over all pairs in mode pool. A unit is what a byte of a long frame costs.
type Loads struct {
	Buckets []uint64   `json:"buckets"` // empty: there is no such pair, or the table was changed meanwhile
	Frames  uint64     `json:"frames"`
	Seconds float64    `json:"seconds"` // for which it was measured
	Spread  rss.Spread `json:"spread"`  // over the workers, by the table as it is
}

// Rebalancing is whether to rebalance, or only to say what that would do.
type Rebalancing struct {
	DryRun bool `json:"dry_run,omitempty"`
}

// Rebalanced is what a rebalancing did, or would do.
type Rebalanced struct {
	Done      bool       `json:"done"`    // the moves are in force
	Worth     bool       `json:"worth"`   // they bring enough
	Verdict   string     `json:"verdict"` // why, or why not
	Frames    uint64     `json:"frames"`  // that were measured
	Seconds   float64    `json:"seconds"` // for which it was measured
	Moves     []rss.Move `json:"moves"`
	Before    rss.Spread `json:"before"`
	After     rss.Spread `json:"after"` // if the loads stay
	Heavy     []int      `json:"heavy"` // buckets with more load than a worker's fair share: no table can spread one
	Elephants []Elephant `json:"elephants"`
	Change    Change     `json:"change"`
}

// Pool is the workers, and what changes while they forwarded did.
type Pool struct {
	CPUs     string    `json:"cpus"` // of the workers, in their order
	Policy   string    `json:"policy"`
	Priority int       `json:"priority"`
	Workers  []Worker  `json:"workers"`
	Fence    Fence     `json:"fence"`
	Balance  Balancing `json:"balance"`

	Stuck     []Fault `json:"stuck"`     // that don't move now
	Recovered []Fault `json:"recovered"` // that move again, the last of them
	Faults    uint64  `json:"faults"`    // that there were
}

// Fence adds up all changes since the start.
type Fence struct {
	Changes uint64 `json:"changes"`
	Failed  uint64 `json:"failed"`
	Moved   uint64 `json:"moved_buckets"`
	Held    uint64 `json:"held_buckets"`

	MoveP50Micros    float64 `json:"move_p50_us"`
	MoveP99Micros    float64 `json:"move_p99_us"`
	MoveMaxMicros    float64 `json:"move_max_us"`
	BlockedP50Micros float64 `json:"blocked_p50_us"`
	BlockedMaxMicros float64 `json:"blocked_max_us"`
}

// Balancing is what rebalance: auto does and did.
type Balancing struct {
	Auto     bool   `json:"auto"`
	Measured uint64 `json:"measured"` // how often
	Done     uint64 `json:"done"`     // how often it moved buckets
	Verdict  string `json:"verdict"`  // of the last time
}

// PoolChange is what to change of the pool.
type PoolChange struct {
	CPUs string `json:"cpus"` // one per worker, "0-3"
}

// PoolChanged is the pool after a change.
type PoolChanged struct {
	Pool   Pool   `json:"pool"`
	Change Change `json:"change"`
}

// Garbage is what crashed instances have left.
type Garbage struct {
	Found   []string `json:"found"`
	Kept    []string `json:"kept"`    // persistent pairs, which go on without a daemon
	Removed bool     `json:"removed"` // all of it, just now
}

// Failure is the body of every answer whose status isn't 2xx.
type Failure struct {
	Error string `json:"error"` // one line
}

// Finding is one thing that an audit found wrong.
type Finding struct {
	Pair      string `json:"pair"`
	Direction string `json:"direction"`
	What      string `json:"what"`
}

// Audit says whether every ledger balances.
type Audit struct {
	Pairs    int       `json:"pairs"`
	Frames   uint64    `json:"frames"`
	Findings []Finding `json:"findings"`
}

// Version says what is running.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	PID     int    `json:"pid,omitempty"`
}
