package baseline

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
)

// asavie joins by the l2fwd loop of the folder asavie: a program of its own, since its library isn't one that epair is to
// depend on.
func asavie(ctx context.Context, o subject.Options, e ends) (m subject.Made, err error) {
	path, err := exec.LookPath("epair-asavie")
	if err != nil {
		return m, fmt.Errorf("%w: epair-asavie isn't in the path (bench/baseline/asavie/main.go says how to build it)", subject.ErrAbsent)
	}
	if o.MTU > asavieMTU {
		return m, fmt.Errorf("%w: its buffers carry an MTU of %d at most, not %d (lower --size)", subject.ErrAbsent, asavieMTU, o.MTU)
	}
	if err := e.plain(o); err != nil {
		return m, err
	}
	argv := []string{path}
	if len(o.CPUs) > 0 {
		argv = append(argv, "-cpu", strconv.Itoa(o.CPUs[0]))
	}
	argv = append(argv, topo.InName, topo.OutName)
	p, err := start(ctx, e.mid(), "forwarding", nil, argv...)
	if err != nil {
		return m, err
	}
	m.Closer, m.Commands = p, [][]string{argv}
	return m, nil
}

// asavieMTU is for what its buffers of 2 KiB hold behind the kernel's headroom.
const asavieMTU = 1500
