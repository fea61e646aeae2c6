package xdp

import "github.com/cilium/ebpf"

// connect puts the device by which frames of a direction leave into the map.
func (x *crossing) connect(dir int) error {
	to := x.ends[1-dir]
	if err := to.takes(); err != nil {
		return err
	}
	if err := x.shared.clear(x.ports[dir]); err != nil {
		return err
	}
	if err := x.shared.noteLosses(to.id, !to.inner); err != nil {
		return err
	}
	to.noted = true
	return to.connect(x.shared, x.ports[dir], nil)
}

// setEgress lets frames to ends without an inner side pass the program on the way into the device, which
// takes off what they carry, or not.
func (x *crossing) setEgress(on bool) error {
	for dir := range 2 {
		to := x.ends[1-dir]
		if to.inner {
			continue
		}
		var p *ebpf.Program
		if on {
			p = x.coll.Programs[egressName(1-dir)]
		}
		if err := to.connect(x.shared, x.ports[dir], p); err != nil {
			return err
		}
	}
	return nil
}
