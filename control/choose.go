package control

import (
	"fmt"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/fanout/kern"
)

// choice is a datapath that may carry a pair.
type choice struct {
	datapath, why string
	optional      bool // if it can't, the next choice is tried
}

// choices returns the datapaths to try, in order. The user's own choice stands alone.
func choices(cfg *epair.PairConfig) []choice {
	const auto = "chosen by auto, "
	user := func(why string) choice { return choice{"user", auto + why, false} }
	a, b := cfg.A.Kind, cfg.B.Kind
	switch {
	case cfg.Datapath != "auto":
		return []choice{{cfg.Datapath, "as configured", false}}
	case a == epair.TAP || b == epair.TAP:
		return []choice{user("as only a process can take the frames of a tap")}
	case cfg.Port == "xdp":
		return []choice{user("as port xdp is one of its ports")}
	case cfg.Persist && (a == epair.Dev || b == epair.Dev):
		return []choice{{"tc", auto + "as an end exists already", false}}
	case cfg.Persist:
		return []choice{{"direct", auto + "as both ends are new veths", false}}
	case a == epair.Dev || b == epair.Dev:
		return []choice{{"tc", auto + "as an end exists already", true}, user("for want of tc")}
	}
	return []choice{{"direct", auto + "as both ends are new veths", true}, user("for want of direct")}
}

// refuse tells what can't be had, whatever the kernel allows.
func refuse(cfg *epair.PairConfig) error {
	for _, e := range []epair.EndConfig{cfg.A, cfg.B} {
		switch {
		case e.Kind == epair.TAP && cfg.Datapath != "user":
			return fmt.Errorf("add pair %s: datapath %s: %w: only a process can take the frames of %s (use datapath user)",
				cfg.Name, cfg.Datapath, kern.ErrRefused, e)
		case e.Kind == epair.Dev && cfg.Datapath == "direct":
			return fmt.Errorf("add pair %s: datapath direct: %w: it is one new veth, and %s exists already (use tc, xdp or user)",
				cfg.Name, kern.ErrRefused, e)
		case e.Kind == epair.Dev && cfg.Datapath == "user" && cfg.Port == "xdp":
			return fmt.Errorf("add pair %s: port xdp on %s: %w: AF_XDP can't carry unfinished checksums, and what sends to this interface isn't epair's to set (use port packet)",
				cfg.Name, e, kern.ErrRefused)
		}
	}
	return nil
}

func modeMeans(cfg *epair.PairConfig) string {
	switch {
	case cfg.Datapath == "user" && cfg.Mode == "inline":
		return "one worker of the pool serves the pair, without flow hash"
	case cfg.Datapath == "user" && cfg.Mode == "poller":
		return "a thread of the pair's own polls, and sleeps when it is idle"
	case cfg.Datapath == "user":
		return "the flow hash picks the worker of each frame"
	case cfg.Mode == "inline":
		return "the CPU that sends or receives a frame carries it"
	case cfg.Mode == "poller":
		return "threads of the kernel poll (threaded NAPI)"
	}
	return "the flow hash picks the CPU of each frame"
}
