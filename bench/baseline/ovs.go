package baseline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/bench/topo"
	"github.com/epair-net/epair/internal/cpus"
)

// ovsTools are the programs of an Open vSwitch and the packages that have them.
var ovsTools = [...]struct{ name, pkg string }{
	{"ovsdb-tool", "openvswitch-common"}, {"ovsdb-server", "openvswitch-switch"},
	{"ovs-vswitchd", "openvswitch-switch"}, {"ovs-vsctl", "openvswitch-switch"}, {"taskset", "util-linux"},
}

// ovsSchema is where Debian's package has it.
const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// ovs joins by an Open vSwitch with the userspace datapath, whose database and sockets lie in a folder of its own.
func ovs(ctx context.Context, o subject.Options, e ends) (m subject.Made, err error) {
	for _, t := range ovsTools {
		if _, err := find(t.name, t.pkg); err != nil {
			return m, err
		}
	}
	dir, err := os.MkdirTemp("", "epair-ovs-")
	if err != nil {
		return m, err
	}
	c := closers{closeFunc(func() error { return os.RemoveAll(dir) })}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start open vswitch: %w", err), c.Close())
		}
	}()
	in1 := func(name string) string { return filepath.Join(dir, name) }
	once := func(argv ...string) error {
		m.Commands = append(m.Commands, argv)
		return e.mid().Do(func() error { return runOnce(ctx, argv) })
	}
	daemon := func(ready string, argv ...string) error {
		m.Commands = append(m.Commands, argv)
		p, err := start(ctx, e.mid(), ready, nil, argv...)
		if err == nil {
			c = append(c, p)
		}
		return err
	}
	db := "unix:" + in1("db.sock")
	if err := once("ovsdb-tool", "create", in1("conf.db"), ovsSchema); err != nil {
		return m, err
	}
	if err := daemon("ovsdb-server (Open vSwitch)", "ovsdb-server", in1("conf.db"), "--remote=p"+db,
		"--unixctl="+in1("db.ctl"), "--verbose=console:info"); err != nil {
		return m, err
	}
	pin := []string{"taskset", "-c", cpus.Format(o.CPUs)}
	if len(o.CPUs) == 0 {
		pin = nil
	}
	if err := daemon("ovs-vswitchd (Open vSwitch)", append(pin, "ovs-vswitchd", db,
		"--unixctl="+in1("vs.ctl"), "--verbose=console:info")...); err != nil {
		return m, err
	}
	err = once("ovs-vsctl", "--db="+db, "--timeout="+strconv.Itoa(int(startTime.Seconds())),
		"add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev",
		"--", "add-port", "br0", topo.InName, "--", "add-port", "br0", topo.OutName)
	m.Closer = c
	return m, err
}

// runOnce runs a command to its end.
func runOnce(ctx context.Context, argv []string) error {
	text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.200s", argv[0], err, text)
	}
	return nil
}
