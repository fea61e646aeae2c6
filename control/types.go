// Package control joins the halves: it creates the pairs that a configuration
// names, lets the pool forward them, and answers for them over a Unix socket.
package control

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
	Name     string    `json:"name"`
	State    string    `json:"state"` // the worse of its ends
	Datapath string    `json:"datapath"`
	Mode     string    `json:"mode"`
	Why      []string  `json:"why"`
	Steer    string    `json:"steer,omitempty"` // mode pool: user (workers hand over)
	Workers  []int     `json:"served_by"`       // who receives a→b and b→a
	A        End       `json:"a"`
	B        End       `json:"b"`
	AB       Direction `json:"ab"`
	BA       Direction `json:"ba"`
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
}

// Stat is everything that is counted.
type Stat struct {
	Pairs   []Pair   `json:"pairs"`
	Workers []Worker `json:"workers"`
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
