package xdp

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/port/porttest"
	"github.com/epair-net/epair/internal/caps"
)

func TestProbe(t *testing.T) {
	porttest.NewNS(t) // skips without the rights
	for m, err := range Probe() {
		if err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
	if n := len(Probe()); n != 3 {
		t.Errorf("%d modes", n)
	}
}

// Who may not is told what is missing.
func TestProbeWithoutCapability(t *testing.T) {
	porttest.NewNS(t)
	for _, c := range []caps.Cap{caps.BPF, caps.NetAdmin, caps.Perfmon} {
		done := make(chan map[string]error)
		go func() {
			runtime.LockOSThread() // ends with the goroutine, as its capabilities do
			found := map[string]error{}
			defer func() { done <- found }()
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var data [2]unix.CapUserData
			if found["capget"] = unix.Capget(&hdr, &data[0]); found["capget"] != nil {
				return
			}
			for _, n := range []caps.Cap{c, caps.SysAdmin} { // the latter stands for BPF and PERFMON too
				data[n/32].Effective &^= 1 << (n % 32)
			}
			if found["capset"] = unix.Capset(&hdr, &data[0]); found["capset"] != nil {
				return
			}
			for m, err := range Probe() {
				found[string(m)] = err
			}
		}()
		found := <-done
		if err := found["inline"]; err == nil || !strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), c.String()) {
			t.Errorf("without %s: %v", c, found)
		}
	}
}
