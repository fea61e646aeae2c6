// Package compare measures subjects in turns, A B C … A B C …, so that what changes on the machine meanwhile meets
// them all alike.
package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epair-net/epair/bench/load"
	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/wire"
	"github.com/epair-net/epair/internal/cpus"
)

// Config says what is compared, and how.
type Config struct {
	Scenario string // as the report names it
	Subjects []subject.Subject
	Setup    string        // a or b
	Modes    []load.Mode   // none: each subject's own
	Sink     load.Mode     // where frames are counted: Skb: at tcx ingress, as a socket would get them; Frame: at XDP, before that
	Rounds   int           // each measures every subject once
	Time     time.Duration // of one trial
	Size     int           // bytes of a frame with its check sequence; 0: IMIX
	Flows    int
	IP6      int // percent of the flows that are IPv6
	Measure  Measure
	Seed     uint64
	Place    Place

	Command  []string
	Version  string
	Progress func(Progress) // called before each trial; may be nil
}

// Place is the CPUs of a run.
type Place struct {
	Used    []int // whose time counts: all that load, forwarders and sink run on
	Load    []int // generators
	Forward []int // workers of pools, cores of other programs
}

// Progress is how far a run is.
type Progress struct {
	Done, Total int
	Round       int
	What        string
	Left        time.Duration // 0: not known yet
}

// fcs is the check sequence that a frame's size includes and its buffer doesn't.
const fcs = 4

// PlaceOn shares out CPUs: generators on the first n, and forwarders on the rest. Only where there is no rest, or share
// says so, both use the same.
func PlaceOn(used []int, n int, share bool) (p Place, err error) {
	if len(used) == 0 || n < 1 || n > len(used) {
		return p, fmt.Errorf("%d generators on cpus %q: each needs one of its own", n, cpus.Format(used))
	}
	p = Place{Used: used, Load: used[:n], Forward: used[n:]}
	if share || n == len(used) {
		p.Forward = used
	}
	return p, nil
}

// shares says which parts of a subject use the same CPU.
func (p Place) shares(s *subject.Subject, sockets bool) string {
	if sockets {
		return "receiver and what forwards apart from the sender: CPUs " + cpus.Format(p.Forward)
	}
	if s.OnLoad {
		return "load and forwarder: the CPU that sends is the one that forwards"
	}
	var both []int
	for _, c := range p.Load {
		if slices.Contains(p.Forward, c) {
			both = append(both, c)
		}
	}
	if len(both) == 0 {
		return ""
	}
	return "load and forwarder: CPU " + cpus.Format(both)
}

// modes returns the ways in which a subject is loaded. A baseline is loaded only in ways that some
// other subject is, so that there is something to compare.
func (c *Config) modes(s *subject.Subject) (list []load.Mode) {
	if c.Measure.Sockets {
		return []load.Mode{load.Skb} // a socket's frames are
	}
	if len(c.Modes) > 0 {
		return c.Modes
	}
	if c.Size-fcs > wire.MaxLive {
		return []load.Mode{load.Skb} // no XDP frame of the load's can be so long
	}
	if !s.Baseline {
		return s.Modes
	}
	for _, m := range s.Modes {
		alone := true
		for i := range c.Subjects {
			o := &c.Subjects[i]
			if !o.Baseline {
				alone = false
				if slices.Contains(o.Modes, m) {
					list = append(list, m)
					break
				}
			}
		}
		if alone {
			list = append(list, m)
		}
	}
	return list
}

// maxRounds is a day of the shortest trials.
const maxRounds = 10000

// Check says what is wrong with c.
func (c *Config) Check() error {
	var errs []error
	if len(c.Subjects) == 0 {
		errs = append(errs, errors.New("nothing to measure"))
	}
	if c.Setup != "a" && c.Setup != "b" {
		errs = append(errs, fmt.Errorf("set-up %q: unknown (use a or b)", c.Setup))
	}
	if c.Rounds < 1 || c.Rounds > maxRounds {
		errs = append(errs, fmt.Errorf("%d rounds: outside 1 to %d", c.Rounds, maxRounds))
	}
	if !c.Measure.Sockets && (c.Flows < 1 || c.Flows > wire.MaxFlow) {
		errs = append(errs, fmt.Errorf("%d flows: outside 1 to %d", c.Flows, wire.MaxFlow))
	}
	if c.Time < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("trials of %s: at least 10ms", c.Time))
	}
	if c.Size != 0 {
		if err := wire.CheckSize(c.Size - fcs); err != nil {
			errs = append(errs, fmt.Errorf("size %d (with its check sequence of %d): %w", c.Size, fcs, err))
		}
	}
	if c.Size-fcs > wire.MaxLive && slices.Contains(c.Modes, load.Frame) {
		errs = append(errs, fmt.Errorf("size %d: frame load makes at most %d bytes (use --load skb, or auto)", c.Size, wire.MaxLive+fcs))
	}
	if c.IP6 < 0 || c.IP6 > 100 {
		errs = append(errs, fmt.Errorf("%d %% of the flows over ipv6: outside 0 to 100", c.IP6))
	}
	if least := wire.MinSize6 + fcs; c.IP6 > 0 && c.Size != 0 && c.Size < least {
		errs = append(errs, fmt.Errorf("size %d: over ipv6 a frame has at least %d bytes (use --size %d)", c.Size, least, least))
	}
	if len(c.Measure.Variants) == 0 {
		errs = append(errs, errors.New("nothing to measure of each"))
	}
	if c.Measure.Check != nil {
		if err := c.Measure.Check(c.Place); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("measure: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// load is the load's configuration in a mode; where it goes, the trial says.
func (c *Config) load(m load.Mode) load.Config {
	return load.Config{
		Mode: m, CPUs: c.Place.Load, Flows: max(c.Flows, len(c.Place.Load)), IP6: c.IP6, Size: c.Size - fcs, IMIX: c.Size == 0, Seed: c.Seed,
	}
}

// mtu is what the interfaces need for a frame.
func (c *Config) mtu() int { return max(1500, c.Size-fcs-14) }
