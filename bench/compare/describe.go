package compare

import (
	"slices"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/ethtool"
	"github.com/epair-net/epair/internal/netns"
)

// offloads are those that change what crosses an interface.
var offloads = [...]string{
	"tx-checksum-ip-generic", "tx-scatter-gather", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation",
	"tx-generic-segmentation", "rx-gro", "rx-udp-gro-forwarding", "rx-checksum",
}

// describe notes in a job's rows what its topology is made of.
func (r *run) describe(j *job, top subject.Topology) error {
	info := top.Info()
	on, err := offloadsOf(top)
	if err != nil {
		return err
	}
	for _, i := range j.rows {
		row := &r.file.Rows[i]
		row.Why, row.Commands, row.Offloads = info.Why, info.Commands, on
	}
	return nil
}

// offloadsOf returns those of both ends that are on.
func offloadsOf(top subject.Topology) (map[string][]string, error) {
	on := map[string][]string{}
	for name, end := range map[string]func() (int, int){topo.LoadName: top.Load, topo.SinkName: top.Sink} {
		ns, _ := end()
		err := netns.Do(ns, func() error {
			all, err := ethtool.Features(name)
			for _, f := range offloads {
				if all[f].On {
					on[name] = append(on[name], f)
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(on[name])
	}
	return on, nil
}
