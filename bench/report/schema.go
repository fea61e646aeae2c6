// Package report is what a bench says: the file format epair.bench/1, its statistics, a text table, a
// comparison of two files, and a page with plots.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/epair-net/epair/bench/machine"
)

// Schema is what File.Schema says. Keys may be added to it; those that are there stay.
const Schema = "epair.bench/1"

// File is one run of the bench. Fields that don't apply are left out.
type File struct {
	Schema   string        `json:"schema"`
	Started  time.Time     `json:"started"`
	Machine  machine.Facts `json:"machine"`
	Run      machine.Noise `json:"run"` // what disturbed the run as a whole
	Command  []string      `json:"command"`
	Settings Settings      `json:"settings"`
	Partial  bool          `json:"partial,omitempty"` // interrupted: not all rounds are there
	Rows     []Row         `json:"rows"`
}

// Settings is what held for all rows.
type Settings struct {
	Scenario  string              `json:"scenario"`
	Rounds    int                 `json:"rounds,omitempty"`
	Seconds   float64             `json:"seconds"` // of one trial
	Seed      uint64              `json:"seed"`
	CPUs      Placement           `json:"cpus"`
	LoadLimit map[string]LoadCost `json:"load_limit,omitempty"` // by way of loading: nothing between load and sink
}

// Placement says what ran where, as CPU lists.
type Placement struct {
	Used    string `json:"used,omitempty"`    // all that was used, whose time counts
	Load    string `json:"load,omitempty"`    // generators
	Forward string `json:"forward,omitempty"` // workers
}

// LoadCost is what the load and the sink cost by themselves.
type LoadCost struct {
	PPS     float64 `json:"pps"`
	FrameNs float64 `json:"cpu_ns_per_frame"`
	SpinNs  float64 `json:"cpu_ns_per_spin,omitempty"`
}

// Row is one thing that was measured in one way. Rows are compared only when
// setup, load, size, flows and rate are the same.
type Row struct {
	Cell     string  `json:"cell"`
	Baseline bool    `json:"baseline"`
	Setup    string  `json:"setup"`
	Load     string  `json:"load,omitempty"` // how frames go in: frame, skb or socket
	Sink     string  `json:"sink,omitempty"` // where frames are counted: tcx or xdp
	Size     int     `json:"size,omitempty"` // bytes of a frame, check sequence included; 0: IMIX or a stream
	Flows    int     `json:"flows,omitempty"`
	IP6      int     `json:"ip6_percent,omitempty"` // of the flows
	Rate     float64 `json:"rate_pps,omitempty"`    // intended; left out at maximum rate
	Variant  string  `json:"variant,omitempty"`     // what else tells the row from others of its cell
	Path     string  `json:"path,omitempty"`        // hops from load to sink
	Shares   string  `json:"shares,omitempty"`      // which parts share a CPU

	Refused  string              `json:"refused,omitempty"` // why there are no rounds
	Why      []string            `json:"why,omitempty"`     // what was chosen, and what it costs
	Commands [][]string          `json:"commands,omitempty"`
	Offloads map[string][]string `json:"offloads,omitempty"` // by end: those that are on

	Rounds       []Round            `json:"rounds"`
	PPS          *Spread            `json:"pps,omitempty"`
	Gbps         *Spread            `json:"gbps,omitempty"`
	CPUNs        *Spread            `json:"cpu_ns_per_frame,omitempty"`
	Latency      *Latency           `json:"latency_us,omitempty"`
	Curve        []CurvePoint       `json:"latency_curve,omitempty"`
	Ratio        map[string]float64 `json:"ratio,omitempty"`         // to a baseline, or the datapath's inline cell, of the same round: median
	NoDifference []string           `json:"no_difference,omitempty"` // of those that Ratio names: whose spread overlaps this one's
	Noise        []string           `json:"noise,omitempty"`         // why the row is to be read with care
	Values       map[string]Spread  `json:"values,omitempty"`        // a scenario's own figures, by name with unit
	Switch       *Switch            `json:"switch,omitempty"`
}

// Round is one trial.
type Round struct {
	Round      int                `json:"round"` // from 1
	PPS        float64            `json:"pps"`   // delivered
	OfferedPPS float64            `json:"offered_pps,omitempty"`
	Gbps       float64            `json:"gbps,omitempty"`
	Offered    uint64             `json:"offered,omitempty"`
	Lost       uint64             `json:"lost"`
	Reordered  uint64             `json:"reordered"`
	Duplicated uint64             `json:"duplicated"`
	CPUNs      *float64           `json:"cpu_ns_per_frame,omitempty"`
	Latency    *Latency           `json:"latency_us,omitempty"`
	GapMs      float64            `json:"longest_gap_ms,omitempty"`
	Values     map[string]float64 `json:"values,omitempty"`
	Noise      *machine.Noise     `json:"noise,omitempty"`
	Invalid    string             `json:"invalid,omitempty"` // why the trial doesn't count
}

// Latency is a distribution in microseconds.
type Latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	SD   float64 `json:"stddev"` // the delay's variation
}

// CurvePoint is a latency that a part of the frames didn't exceed.
type CurvePoint struct {
	Percentile float64 `json:"percentile"`
	Micros     float64 `json:"us"`
}

// Switch is what happened while a pair's settings changed under load.
type Switch struct {
	SlotMs float64       `json:"slot_ms"`
	Frames []uint64      `json:"frames"` // arrivals in each slot
	Events []SwitchEvent `json:"events"`
}

// SwitchEvent is one change.
type SwitchEvent struct {
	AtMs   float64 `json:"at_ms"` // from the timeline's start
	TookMs float64 `json:"took_ms"`
	What   string  `json:"what"`
	Error  string  `json:"error,omitempty"`
}

// Write writes f as JSON.
func (f *File) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	if err := enc.Encode(f); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Read reads a file that Write wrote.
func Read(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	f := &File{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("read report %s: it isn't whole, or no report (write one with 'epair bench … --json FILE')", path)
	}
	if f.Schema != Schema {
		return nil, fmt.Errorf("read report %s: schema %q (this version reads %s)", path, f.Schema, Schema)
	}
	return f, nil
}
